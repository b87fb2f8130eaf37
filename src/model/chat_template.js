// What runs inside the chat template's interpreter beside @huggingface/jinja: the environment that
// transformers gives a template, and the bounds that QuickJS's own limits do not set.
import { Environment, Interpreter, Template } from "@huggingface/jinja";
import { dict } from "chat_template_python.js";

// The package looks a variable up by recursion and takes any exception, a stack overflow too, for
// "not defined". A loop cannot overflow.
const UNDEFINED = new Environment().lookupVariable("undefined");
Environment.prototype.lookupVariable = function (name) {
  for (let scope = this; scope; scope = scope.parent) {
    const value = scope.variables.get(name);
    if (value !== undefined) return value;
  }
  return UNDEFINED;
};

// QuickJS asks for the time between its own instructions, not inside a search, which takes text
// length times pattern length at worst.
const SEARCH_STEPS_MAX = 2 ** 32;
for (const name of ["includes", "split", "replaceAll"]) {
  const search = String.prototype[name];
  String.prototype[name] = function (pattern, ...rest) {
    const length = pattern instanceof RegExp ? pattern.source.length : String(pattern).length;
    if (length * this.length > SEARCH_STEPS_MAX) throw new RangeError("searching in a text that is too long");
    return search.call(this, pattern, ...rest);
  };
}

const RANGE_MAX = 1_000_000;
const range = (start, stop, step = 1) => {
  if (stop === undefined) [start, stop] = [0, start];
  if (step === 0) throw new Error("range() step must not be zero");
  const count = Math.max(Math.ceil((stop - start) / step), 0);
  if (count > RANGE_MAX) throw new RangeError(`range() of ${count} numbers`);
  return Array.from({ length: count }, (_, i) => start + i * step);
};

const raise_exception = (message) => {
  throw new Error(message);
};

// Jinja takes any line end for a line feed.
export const parse = (source) => new Template(source.replace(/\r\n?/g, "\n")).parsed;

// `given` are the caller's variables; `own` those of the model. As in transformers, tools and
// documents are none when they are not given, rather than undefined.
export const render = (program, given, own) => {
  const scope = new Environment();
  const variables = {
    true: true, false: false, none: null, True: true, False: false, None: null,
    range, raise_exception,
    tools: null, documents: null, add_generation_prompt: false,
    ...own, ...given,
  };
  for (const [name, value] of Object.entries(variables)) scope.set(name, value);
  if (!("dict" in variables)) scope.setVariable("dict", dict);
  return new Interpreter(scope).run(program).value;
};
