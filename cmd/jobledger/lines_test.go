package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func readLines(t *testing.T, r io.Reader) (list []line) {
	t.Helper()
	lines := newLineReader(r)
	for {
		ln, err := lines.next()
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(t, err)
		list = append(list, ln)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	text := "one\n\n  \t\ntwo\r\nthree"
	for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
		list := readLines(t, r)
		require.Equal(t, []line{
			{number: 1, text: []byte("one"), bytes: 4},
			{number: 4, text: []byte("two"), bytes: 5},
			{number: 5, text: []byte("three"), bytes: 5},
		}, list)
	}
	require.Empty(t, readLines(t, strings.NewReader("\n\r\n")))
}

// A line beyond the limit is passed over without being kept, and the next one
// is read as if nothing had been.
func TestLongLines(t *testing.T) {
	t.Parallel()
	fits := strings.Repeat("x", maxLineBytes)
	huge := 64 << 20
	list := readLines(t, io.MultiReader(
		strings.NewReader(fits+"\r\n"), io.LimitReader(endless('y'), int64(huge)), strings.NewReader("\nlast")))
	require.Len(t, list, 3)
	require.False(t, list[0].long)
	require.Equal(t, fits, string(list[0].text))
	require.True(t, list[1].long)
	require.EqualValues(t, huge+1, list[1].bytes)
	require.Less(t, cap(list[1].text), 2*maxLineBytes)
	require.Equal(t, "last", string(list[2].text))
	require.Equal(t, 3, list[2].number)
}

// endless is a reader of one byte, again and again.
type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

func TestLinesOfABrokenFile(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is gone")
	lines := newLineReader(io.MultiReader(strings.NewReader("one\ntw"), iotest.ErrReader(broken)))
	ln, err := lines.next()
	require.NoError(t, err)
	require.Equal(t, "one", string(ln.text))
	_, err = lines.next()
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "read line 2")
}

func TestParseIntent(t *testing.T) {
	t.Parallel()
	defaults := intentDefaults{owner: "acme", kind: "echo"}
	in, err := parseIntent(line{text: []byte(` {"key":"é k","input":{ "n" : 1.50 },"owner":"b:c","run_at":"x"} `)}, defaults)
	require.NoError(t, err)
	require.Equal(t, "b:c", in.owner)
	require.Equal(t, "é k", in.key)
	require.Len(t, in.body, 3)
	require.JSONEq(t, `"echo"`, string(in.body["kind"]))
	require.Equal(t, `{ "n" : 1.50 }`, string(in.body["input"]))
	require.Equal(t, `"x"`, string(in.body["run_at"]))

	in, err = parseIntent(line{text: []byte(`{"key":"k","kind":"other"}`)}, intentDefaults{ownerKnown: true})
	require.NoError(t, err)
	require.Empty(t, in.owner)
	require.Equal(t, `"other"`, string(in.body["kind"]))

	for text, fault := range map[string]string{
		`{"key":"k","owner":null}`:                   "owner is not a string",
		`{"key":"k","owner":""}`:                     "owner is empty",
		`{"key":"k","owner":"a\u0001"}`:              "control character",
		`{"key":" k"}`:                               "white space",
		`{"key":"` + strings.Repeat("k", 256) + `"}`: "256 bytes",
		`{"Key":"k"}`:                                `"Key" is not known`,
		`{"key":"k","key":"k"}`:                      "twice",
		`null`:                                       "not a JSON object",
		`"x"`:                                        "not a JSON object",
		`{"key":"k"} {}`:                             "",
		"\xef\xbb\xbf{}":                             "byte order mark",
		"{\"key\":\"\xff\"}":                         "",
	} {
		_, err := parseIntent(line{text: []byte(text)}, defaults)
		require.ErrorContains(t, err, fault, text)
	}
	_, err = parseIntent(line{text: []byte("{"), bytes: 2 << 20, long: true}, defaults)
	require.ErrorContains(t, err, "2097152 bytes")
}
