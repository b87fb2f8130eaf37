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

const text = (args, i = 0) => {
  if (!(args[i] instanceof StringValue)) throw new Error("a string method needs a string");
  return args[i].value;
};
const strings = (list) => new ArrayValue(list.map((s) => new StringValue(s)));

// strip(), lstrip() and rstrip() with the characters to take off, which the package ignores.
const strip = (s, characters, left, right) => {
  let start = 0;
  let end = s.length;
  while (left && start < end && characters.includes(s[start])) start++;
  while (right && start < end && characters.includes(s[end - 1])) end--;
  return s.slice(start, end);
};
const stripper = (name, left, right) => (s, args) =>
  new StringValue(args[0] instanceof StringValue ? strip(s, args[0].value, left, right) : s[name]());

const capitalize = (s) => s.charAt(0).toUpperCase() + s.slice(1).toLowerCase();

const rsplit = (s, separator, most) => {
  const parts = s.split(separator);
  const joined = most < 0 ? 0 : Math.max(parts.length - most, 0);
  return joined > 1 ? [parts.slice(0, joined).join(separator), ...parts.slice(joined)] : parts;
};

// Methods of Python's str that the package lacks or takes otherwise: (the string, arguments) => value.
const STRING_METHODS = {
  strip: stripper("trim", true, true),
  lstrip: stripper("trimStart", true, false),
  rstrip: stripper("trimEnd", false, true),
  capitalize: (s) => new StringValue(capitalize(s)),
  title: (s) => new StringValue(s.toLowerCase().replace(/(?<!\p{L})\p{L}/gu, (c) => c.toUpperCase())),
  join: (s, args) => {
    if (!(args[0] instanceof ArrayValue)) throw new Error("join() needs a list");
    return new StringValue(args[0].value.map((_, i) => text(args[0].value, i)).join(s));
  },
  splitlines: (s) => strings(s === "" ? [] : s.replace(/\r?\n$/, "").split(/\r?\n/)),
  rsplit: (s, args) => strings(rsplit(s, text(args), args[1]?.value ?? -1)),
  find: (s, args) => valueOf(s.includes(text(args)) ? s.split(text(args))[0].length : -1),
  count: (s, args) => valueOf(s.split(text(args)).length - 1),
  removeprefix: (s, args) => new StringValue(s.startsWith(text(args)) ? s.slice(text(args).length) : s),
  removesuffix: (s, args) =>
    new StringValue(text(args) && s.endsWith(text(args)) ? s.slice(0, -text(args).length) : s),
  isdigit: (s) => new BooleanValue(/^\p{Nd}+$/u.test(s)),
  isspace: (s) => new BooleanValue(/^\s+$/.test(s)),
};

const stringBuiltins = Object.getOwnPropertyDescriptor(StringValue.prototype, "builtins").get;
Object.defineProperty(StringValue.prototype, "builtins", {
  get() {
    const isNew = this._builtins === undefined;
    const builtins = stringBuiltins.call(this);
    if (isNew)
      for (const [name, method] of Object.entries(STRING_METHODS))
        builtins.set(name, new FunctionValue((args) => method(this.value, args)));
    return builtins;
  },
});

// append() and pop() of a list: transformers' sandbox refuses them, llama.cpp takes them, and templates
// that were made for GGUF files collect tools and the ids of calls with them.
const listBuiltins = Object.getOwnPropertyDescriptor(ArrayValue.prototype, "builtins")?.get;
Object.defineProperty(ArrayValue.prototype, "builtins", {
  get() {
    this._builtins ??= new Map([
      ...(listBuiltins?.call(this) ?? []),
      ["length", valueOf(this.value.length)],
      ["append", new FunctionValue((args) => {
        this.value.push(args[0]);
        this._builtins = undefined;
        return valueOf(null);
      })],
      ["pop", new FunctionValue((args) => {
        const at = args[0]?.type === "IntegerValue" ? args[0].value : -1;
        const [popped] = this.value.splice(at, 1);
        if (popped === undefined) throw new Error("pop from a list that has no such item");
        this._builtins = undefined;
        return popped;
      })],
    ]);
    return this._builtins;
  },
  set() {},
});

// The text of a list or an object is Python's repr(), not JSON.
const ESCAPES = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const reprString = (s) => {
  const quote = s.includes("'") && !s.includes('"') ? '"' : "'";
  const escaped = s.replace(/[\x00-\x1f\x7f\\'"]/g, (c) =>
    ESCAPES[c] ?? (c === quote ? "\\" + c : c >= " " && c < "\x7f" ? c
      : "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0")));
  return quote + escaped + quote;
};

// A dictionary's keys are strings, or numbers, which stand in the map as they are.
const keyOf = (value) => (value instanceof StringValue || value.type === "IntegerValue" ? value.value : undefined);
ObjectValue.prototype.keys = function () {
  return new ArrayValue(Array.from(this.value.keys(), valueOf));
};
ObjectValue.prototype.items = function () {
  return new ArrayValue(Array.from(this.value, ([key, value]) => new ArrayValue([valueOf(key), value])));
};

const repr = (value) => {
  if (value.type === "NullValue") return "None";
  if (value instanceof StringValue) return reprString(value.value);
  if (value.type === "TupleValue") return `(${value.value.map(repr).join(", ")}${value.value.length === 1 ? "," : ""})`;
  if (value instanceof ArrayValue) return `[${value.value.map(repr).join(", ")}]`;
  if (value instanceof ObjectValue)
    return `{${Array.from(value.value, ([key, member]) => `${repr(valueOf(key))}: ${repr(member)}`).join(", ")}}`;
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

// == compares by value, and a value is equal to its own kind only.
const isNumber = (value) => ["IntegerValue", "FloatValue", "BooleanValue"].includes(value.type);
const equal = (a, b) => {
  if (isNumber(a) && isNumber(b)) return Number(a.value) === Number(b.value);
  if (a.type !== b.type) return false;
  if (a instanceof ArrayValue)
    return a.value.length === b.value.length && a.value.every((item, i) => equal(item, b.value[i]));
  if (a instanceof ObjectValue)
    return a.value.size === b.value.size &&
      Array.from(a.value).every(([key, value]) => b.value.has(key) && equal(value, b.value.get(key)));
  return a.value === b.value;
};

const str = (value) =>
  value.type === "UndefinedValue" ? "" : value instanceof StringValue ? value.value : repr(value);

// Whether `list` has the item; undefined: it is nothing that has items.
const has = (list, item) => {
  if (list instanceof ArrayValue) return list.value.some((member) => equal(member, item));
  if (list instanceof ObjectValue) return list.value.has(keyOf(item));
  if (list instanceof StringValue && item instanceof StringValue) return list.value.includes(item.value);
};

const REPEATED_MAX = 2 ** 26;
const repeated = (value, times) => {
  const count = Math.max(times.value, 0);
  if (value.value.length * count > REPEATED_MAX) throw new RangeError("repeating something too often");
  if (value instanceof StringValue) return new StringValue(value.value.repeat(count));
  return new ArrayValue(Array.from({ length: count }, () => value.value).flat());
};

const truth = (is, negated = false) => (is === undefined ? undefined : new BooleanValue(is !== negated));

// Operators of which Python allows more, or which it takes otherwise; undefined: as the package has it.
const OPERATORS = {
  in: (a, b) => truth(has(b, a)),
  "not in": (a, b) => truth(has(b, a), true),
  "==": (a, b) => new BooleanValue(equal(a, b)),
  "!=": (a, b) => new BooleanValue(!equal(a, b)),
  "~": (a, b) => new StringValue(str(a) + str(b)),
  "*": (a, b) => {
    if ((a instanceof StringValue || a instanceof ArrayValue) && b.type === "IntegerValue") return repeated(a, b);
    if ((b instanceof StringValue || b instanceof ArrayValue) && a.type === "IntegerValue") return repeated(b, a);
  },
  "%": (a, b) => {
    if (a.type === "IntegerValue" && b.type === "IntegerValue" && b.value !== 0)
      return valueOf(a.value - b.value * Math.floor(a.value / b.value));
  },
};
for (const [operator, compare] of Object.entries({
  "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b,
})) {
  OPERATORS[operator] = (a, b) => {
    if (a instanceof StringValue && b instanceof StringValue) return new BooleanValue(compare(a.value, b.value));
  };
}

// The operands are evaluated here; for the package they become two names in a scope that knows only them.
const OPERANDS = { left: { type: "Identifier", value: "left" }, right: { type: "Identifier", value: "right" } };
const evaluateBinaryExpression = Interpreter.prototype.evaluateBinaryExpression;
Interpreter.prototype.evaluateBinaryExpression = function (node, environment) {
  const operator = OPERATORS[node.operator.value];
  if (!operator) return evaluateBinaryExpression.call(this, node, environment);
  const left = this.evaluate(node.left, environment);
  const right = this.evaluate(node.right, environment);
  return operator(left, right) ??
    evaluateBinaryExpression.call(this, { operator: node.operator, ...OPERANDS },
      { lookupVariable: (name) => (name === "left" ? left : right) });
};

const evaluated = (node, operands) =>
  [{ ...node, object: OPERANDS.left, ...(node.computed && { property: OPERANDS.right }) },
    { lookupVariable: (name) => operands[name] }];

// x.items is a dictionary's method, whatever keys it has, while x["items"] is the key's value.
const METHODS = new Set(["items", "keys", "values", "get"]);
const evaluateMemberExpression = Interpreter.prototype.evaluateMemberExpression;
Interpreter.prototype.evaluateMemberExpression = function (node, environment) {
  if (node.computed ? node.property.type === "SliceExpression" : !METHODS.has(node.property.value))
    return evaluateMemberExpression.call(this, node, environment);
  const left = this.evaluate(node.object, environment);
  const right = node.computed ? this.evaluate(node.property, environment) : undefined;
  if (left.type === "ObjectValue" && !node.computed) return left.builtins.get(node.property.value);
  if (left.type === "ObjectValue" && right.type === "IntegerValue")
    return left.value.get(right.value) ?? new UndefinedValue();
  return evaluateMemberExpression.call(this, ...evaluated(node, { left, right }));
};

const evaluate = Interpreter.prototype.evaluate;
Interpreter.prototype.evaluate = function (node, environment) {
  if (node?.type !== "ObjectLiteral") return evaluate.call(this, node, environment);
  const members = Array.from(node.value, ([name, value]) => {
    const key = keyOf(this.evaluate(name, environment));
    if (key === undefined) throw new Error("keys of a dictionary must be strings or whole numbers");
    return [key, this.evaluate(value, environment)];
  });
  return new ObjectValue(new Map(members));
};

// All scopes share one table of tests.
const tests = new Environment().tests;
tests.set("ne", (a, b) => !equal(a, b));
tests.set("eq", equal);
tests.set("equalto", equal);
tests.set("float", (a) => a.type === "FloatValue");
tests.set("iterable", (a) => a instanceof ArrayValue || a instanceof ObjectValue || a instanceof StringValue);

// An undefined operand of a text filter counts as "", and a string is a sequence of characters:
// templates for vision models look for image parts in a content that may be plain text.
const TEXT_FILTERS =
  new Set(["trim", "upper", "lower", "title", "capitalize", "replace", "indent", "length", "string"]);
// These take the text of whatever they get.
const STRING_FILTERS = new Set(["trim", "upper", "lower", "title", "capitalize", "replace", "string"]);
const LIST_FILTERS = new Set(["list", "first", "last", "reverse", "unique", "map"]);

const SYNONYMS = { count: "length", d: "default" };
const renamed = (filter, name) =>
  filter.type === "CallExpression"
    ? { ...filter, callee: { type: "Identifier", value: name } }
    : name === "default" ? { type: "CallExpression", callee: { type: "Identifier", value: name }, args: [] }
    : { type: "Identifier", value: name };

// Filters that the package lacks: (the operand) => value; undefined: not of such an operand.
const FILTERS = {
  fromjson: (operand) => operand instanceof StringValue ? valueOf(JSON.parse(operand.value)) : undefined,
  dictsort: (operand) => operand instanceof ObjectValue && Array.from(operand.value.keys()).every(Number.isInteger)
    ? new ArrayValue(operand.items().value.sort((a, b) => a.value[0].value - b.value[0].value)) : undefined,
  sum: (operand) => operand instanceof ArrayValue && operand.value.every(isNumber)
    ? valueOf(operand.value.reduce((sum, item) => sum + Number(item.value), 0)) : undefined,
};

const applyFilter = Interpreter.prototype.applyFilter;
Interpreter.prototype.applyFilter = function (operand, filter, environment) {
  const name = filter.type === "CallExpression" ? filter.callee.value : filter.value;
  if (SYNONYMS[name]) return this.applyFilter(operand, renamed(filter, SYNONYMS[name]), environment);
  const own = FILTERS[name]?.(operand);
  if (own) return own;
  if (operand instanceof ArrayValue && name === "map" && filter.args?.[0]?.type === "StringLiteral") {
    const [{ value }, ...args] = filter.args;
    const callee = { type: "Identifier", value };
    const each = args.length ? { type: "CallExpression", callee, args } : callee;
    return new ArrayValue(operand.value.map((item) => this.applyFilter(item, each, environment)));
  }
  if (operand instanceof StringValue && name === "trim" && filter.type === "CallExpression")
    return operand.builtins.get("strip").value(this.evaluateArguments(filter.args, environment)[0], environment);
  if (operand instanceof UndefinedValue && TEXT_FILTERS.has(name)) operand = new StringValue("");
  if (operand instanceof StringValue && name === "selectattr") return new ArrayValue([]);
  if (operand instanceof StringValue && LIST_FILTERS.has(name)) operand = valueOf(Array.from(operand.value));
  if (!(operand instanceof StringValue) && STRING_FILTERS.has(name)) operand = new StringValue(repr(operand));
  return applyFilter.call(this, operand, filter, environment);
};

// How {% break %} and {% continue %} travel.
const stopOf = (type) => {
  try {
    evaluate.call(new Interpreter(new Environment()), { type });
  } catch (stop) {
    return stop.constructor;
  }
};
const Break = stopOf("Break");
const Continue = stopOf("Continue");

// None that a template writes is "None"; these give it for nothing. What a block has written before it is
// left counts.
const SILENT = new Set(["Set", "Macro", "Comment"]);
Interpreter.prototype.evaluateBlock = function (statements, environment) {
  let written = "";
  for (const statement of statements) {
    try {
      const value = this.evaluate(statement, environment);
      if (value.type !== "NullValue" || !SILENT.has(statement.type)) written += str(value);
    } catch (stop) {
      if (stop instanceof Break || stop instanceof Continue) stop.written = written + (stop.written ?? "");
      throw stop;
    }
  }
  return new StringValue(written);
};

const itemsOf = (value) => {
  if (value instanceof ArrayValue) return value.value;
  if (value instanceof ObjectValue) return value.keys().value;
  if (value instanceof StringValue) return strings(Array.from(value.value)).value;
  throw new Error(`cannot go through what is no list: ${value.type}`);
};

const bind = (target, value, scope) => {
  if (target.type === "Identifier") {
    scope.setVariable(target.value, value);
    return;
  }
  const values = itemsOf(value);
  if (values.length !== target.value.length) throw new Error(`${values.length} values for ${target.value.length} names`);
  target.value.forEach((each, i) => bind(each, values[i], scope));
};

const loopOf = (items, i) => valueOf({
  index: i + 1, index0: i, revindex: items.length - i, revindex0: items.length - i - 1,
  first: i === 0, last: i === items.length - 1, length: items.length,
});

// Each turn of a loop has a scope of its own: what it sets is gone in the next.
Interpreter.prototype.evaluateFor = function (node, environment) {
  const select = node.iterable.type === "SelectExpression" ? node.iterable : undefined;
  const begin = (item) => {
    const scope = new Environment(environment);
    bind(node.loopvar, item, scope);
    return scope;
  };
  const items = itemsOf(this.evaluate(select ? select.lhs : node.iterable, environment))
    .filter((item) => !select || this.evaluate(select.test, begin(item)).__bool__().value);
  let written = "";
  let isWhole = false; // one turn was not left: Jinja asks for that before {% else %}
  for (const [i, item] of items.entries()) {
    const scope = begin(item);
    const loop = loopOf(items, i);
    loop.value.set("previtem", items[i - 1] ?? new UndefinedValue());
    loop.value.set("nextitem", items[i + 1] ?? new UndefinedValue());
    scope.setVariable("loop", loop);
    try {
      written += this.evaluateBlock(node.body, scope).value;
      isWhole = true;
    } catch (stop) {
      if (!(stop instanceof Break || stop instanceof Continue)) throw stop;
      written += stop.written ?? "";
      if (stop instanceof Break) break;
    }
  }
  if (!isWhole) written += this.evaluateBlock(node.defaultBlock, environment).value;
  return new StringValue(written);
};

// dict(a=1, b=2), which the package lacks. A function of the global scope gets its arguments as raw
// values, so this one is put into a scope as a value.
export const dict = new FunctionValue((args) => {
  const members = args.flatMap((argument) => (argument instanceof ObjectValue ? Array.from(argument.value) : []));
  return new ObjectValue(new Map(members));
});
