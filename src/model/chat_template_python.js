// Where @huggingface/jinja differs from Python's Jinja in what real chat templates do. Its value
// classes are not exported, so they are found by making one value of each.
import { Environment, Interpreter } from "@huggingface/jinja";

const valueOf = (value) => new Environment().set("value", value);
const StringValue = valueOf("").constructor;
const ArrayValue = valueOf([]).constructor;
const ObjectValue = valueOf({}).constructor;
const BooleanValue = valueOf(true).constructor;
const FunctionValue = valueOf(() => null).constructor;
const UndefinedValue = valueOf(undefined).constructor;

// strip(), lstrip() and rstrip() with the characters to take off; the package ignores them.
const strip = (text, characters, left, right) => {
  let start = 0;
  let end = text.length;
  while (left && start < end && characters.includes(text[start])) start++;
  while (right && start < end && characters.includes(text[end - 1])) end--;
  return text.slice(start, end);
};

const stringBuiltins = Object.getOwnPropertyDescriptor(StringValue.prototype, "builtins").get;
Object.defineProperty(StringValue.prototype, "builtins", {
  get() {
    const isNew = this._builtins === undefined;
    const builtins = stringBuiltins.call(this);
    if (!isNew) return builtins;
    for (const [name, left, right] of [["strip", true, true], ["lstrip", true, false], ["rstrip", false, true]]) {
      const whitespace = builtins.get(name);
      builtins.set(name, new FunctionValue((args, scope) =>
        args[0] instanceof StringValue
          ? new StringValue(strip(this.value, args[0].value, left, right))
          : whitespace.value(args, scope)));
    }
    return builtins;
  },
});

// The text of a list or an object is Python's repr(), not JSON.
const ESCAPES = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const reprString = (text) => {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(/[\x00-\x1f\x7f\\'"]/g, (c) =>
    ESCAPES[c] ?? (c === quote ? "\\" + c : c >= " " && c < "\x7f" ? c
      : "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0")));
  return quote + escaped + quote;
};

const repr = (value) => {
  if (value.type === "NullValue") return "None";
  if (value instanceof StringValue) return reprString(value.value);
  if (value.type === "TupleValue") return `(${value.value.map(repr).join(", ")}${value.value.length === 1 ? "," : ""})`;
  if (value instanceof ArrayValue) return `[${value.value.map(repr).join(", ")}]`;
  if (value instanceof ObjectValue)
    return `{${Array.from(value.value, ([key, member]) => `${reprString(key)}: ${repr(member)}`).join(", ")}}`;
  return value.toString();
};

for (const kind of [ArrayValue, ObjectValue]) {
  kind.prototype.toString = function () {
    return repr(this);
  };
}
BooleanValue.prototype.toString = function () {
  return this.value ? "True" : "False";
};

// An undefined operand of a text filter counts as "", and a string is a sequence of characters:
// templates for vision models look for image parts in a content that may be plain text.
const TEXT_FILTERS = new Set(["trim", "upper", "lower", "title", "capitalize", "replace", "indent", "length", "string"]);
const LIST_FILTERS = new Set(["list", "first", "last", "reverse", "unique", "map"]);

const applyFilter = Interpreter.prototype.applyFilter;
Interpreter.prototype.applyFilter = function (operand, filter, environment) {
  const name = filter.type === "CallExpression" ? filter.callee.value : filter.value;
  if (operand instanceof UndefinedValue && TEXT_FILTERS.has(name)) operand = new StringValue("");
  if (operand instanceof StringValue && name === "selectattr") return new ArrayValue([]);
  if (operand instanceof StringValue && LIST_FILTERS.has(name)) operand = valueOf(Array.from(operand.value));
  if ((operand instanceof ArrayValue || operand instanceof ObjectValue) && name === "string")
    return new StringValue(repr(operand));
  return applyFilter.call(this, operand, filter, environment);
};

// Only for a name or a member: they can be evaluated twice.
const evaluateFor = Interpreter.prototype.evaluateFor;
Interpreter.prototype.evaluateFor = function (node, environment) {
  const { iterable } = node;
  if (iterable.type === "Identifier" || iterable.type === "MemberExpression") {
    const value = this.evaluate(iterable, environment);
    if (value instanceof StringValue) {
      const characters = Array.from(value.value, (c) => ({ type: "StringLiteral", value: c }));
      node = { ...node, iterable: { type: "ArrayLiteral", value: characters } };
    }
  }
  return evaluateFor.call(this, node, environment);
};

// dict(a=1, b=2), which the package lacks. A function of the global scope gets its arguments as raw
// values, so this one is put into a scope as a value.
export const dict = new FunctionValue((args) => {
  const members = args.flatMap((argument) => (argument instanceof ObjectValue ? Array.from(argument.value) : []));
  return new ObjectValue(new Map(members));
});
