// Package contract checks what a kind's providers take and give. Two providers
// that accept the same request need not mean the same by it: one invents a
// member, another ignores the instructions, a third returns valid JSON that says
// something else. A contract writes down what must hold: a JSON Schema (draft
// 2020-12) for input and result, assertions in CEL over both, limits on size,
// for model providers the prompt, and cases with what must hold of their results.
//
// A schema that leaves out additionalProperties allows no others, at every level:
// what nobody declared is what a provider invented.
//
// A contract is immutable and safe for concurrent use.
package contract
