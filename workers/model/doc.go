// Package model has attempts carried out by language models: a [Provider] speaks
// OpenAI's chat completions or Anthropic's messages, with the official SDKs, and so
// reaches every server that understands one of the two.
//
// The prompt and the form of the answer come from the kind's contract. The answer's
// text is the result; whether it may count as one is for the contract to say.
//
// The SDKs write the requests and know what the answers mean. What happens on the
// wire is ours: one request for a call, whatever an SDK believes about retries;
// bodies with limits; and a stream is whole only if its last event came. What an
// ending means is said by one table, [table].
package model
