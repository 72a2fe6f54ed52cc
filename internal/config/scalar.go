package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml/ast"
)

// reader turns a node into a value, or rejects the node and returns false.
type reader[T any] func(node) (T, bool)

// set reads an optional member into dst. Without the member, or with a faulty
// one, dst keeps its default.
func set[T any](o *object, name string, dst *T, read reader[T]) {
	n, ok := o.member(name)
	if !ok {
		return
	}
	v, ok := read(n)
	if !ok {
		o.faulty[name] = true
		return
	}
	*dst = v
}

// need is set for a member that must be there.
func need[T any](o *object, name string, dst *T, expected string, read reader[T]) {
	if !o.has(name) {
		o.spot(name).reject("nothing", expected+" (the member is required)")
	}
	set(o, name, dst, read)
}

// rawText returns the node's text without checking it.
func rawText(n node) (string, bool) {
	switch v := n.val.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	}
	return "", false
}

// text reads one line of text, which may be empty.
func text(n node) (string, bool) {
	s, ok := rawText(n)
	switch {
	case !ok:
		n.rejectValue("a text (in quotes, if it looks like something else)")
	case len(s) > maxTextBytes:
		n.reject(fmt.Sprintf("a text of %d bytes", len(s)), fmt.Sprintf("at most %d", maxTextBytes))
		return "", false
	case strings.ContainsFunc(s, unicode.IsControl):
		n.reject("a text with control characters", "a text of one line without them")
		return "", false
	}
	return s, ok
}

// filledText is text that is not empty.
func filledText(n node) (string, bool) {
	s, ok := text(n)
	if ok && s == "" {
		n.reject("an empty text", "a text")
	}
	return s, ok && s != ""
}

// argument reads a command's argument: it may have several lines and be empty.
func argument(n node) (string, bool) {
	s, ok := rawText(n)
	if !ok {
		n.rejectValue("a text (in quotes, if it looks like something else)")
		return "", false
	}
	if strings.ContainsRune(s, 0) {
		n.reject("a text with a NUL character", "a text without")
		return "", false
	}
	return s, true
}

// matching reads a text that must match the pattern as a whole.
func matching(pattern *regexp.Regexp, expected string) reader[string] {
	return func(n node) (string, bool) {
		s, ok := rawText(n)
		if !ok || !pattern.MatchString(s) {
			n.rejectValue(expected)
			return "", false
		}
		return s, true
	}
}

// hidden is matching for values in whose place people paste secrets: a fault
// does not quote them.
func hidden(pattern *regexp.Regexp, expected string) reader[string] {
	return func(n node) (string, bool) {
		s, ok := rawText(n)
		if !ok || !pattern.MatchString(s) {
			n.reject("another value (not shown, it may be a secret)", expected)
			return "", false
		}
		return s, true
	}
}

// oneOf reads an enumeration.
func oneOf[T ~string](values ...T) reader[T] {
	return func(n node) (T, bool) {
		s, isText := rawText(n)
		names := make([]string, len(values))
		for i, v := range values {
			if isText && s == string(v) {
				return v, true
			}
			names[i] = string(v)
		}
		n.rejectValue(strings.Join(names, " or "))
		return "", false
	}
}

func boolean(n node) (bool, bool) {
	v, ok := n.val.(*ast.BoolNode)
	if !ok {
		n.rejectValue("true or false")
		return false, false
	}
	return v.Value, true
}

var decimalInteger = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// integer reads a whole number in plain decimal digits. The library's own value
// is not used: it also takes octal, hexadecimal and underscores.
func integer(lowest, highest int) reader[int] {
	return func(n node) (int, bool) {
		expected := fmt.Sprintf("a whole number from %d to %d", lowest, highest)
		v, ok := n.val.(*ast.IntegerNode)
		if !ok || !decimalInteger.MatchString(v.GetToken().Value) {
			n.rejectValue(expected)
			return 0, false
		}
		i, err := strconv.Atoi(v.GetToken().Value)
		if err != nil || i < lowest || i > highest {
			n.rejectValue(expected)
			return 0, false
		}
		return i, true
	}
}

var decimalMilli = regexp.MustCompile(`^([0-9]{1,6})(?:\.([0-9]{1,3}))?$`)

// milli reads a decimal with up to three places as a number of thousandths,
// exactly: no float is involved.
func milli(lowest, highest int64) reader[int64] {
	return func(n node) (int64, bool) {
		expected := fmt.Sprintf("a decimal from %d to %d with at most 3 places", lowest/1000, highest/1000)
		var parts []string
		switch n.val.(type) {
		case *ast.IntegerNode, *ast.FloatNode:
			parts = decimalMilli.FindStringSubmatch(n.val.GetToken().Value)
		}
		if parts == nil {
			n.rejectValue(expected)
			return 0, false
		}
		thousandths := parts[1] + (parts[2] + "000")[:3]
		v, err := strconv.ParseInt(thousandths, 10, 64)
		if err != nil || v < lowest || v > highest {
			n.rejectValue(expected)
			return 0, false
		}
		return v, true
	}
}

// duration reads a Go duration such as "60s" of whole milliseconds, from lowest
// to maxWait.
func duration(lowest time.Duration) reader[time.Duration] { return durationUpTo(lowest, maxWait) }

func durationUpTo(lowest, highest time.Duration) reader[time.Duration] {
	return func(n node) (time.Duration, bool) {
		expected := fmt.Sprintf(`a duration in whole milliseconds with its unit, such as "60s", from %s to %s`, lowest, highest)
		s, ok := rawText(n)
		if !ok {
			n.rejectValue(expected)
			return 0, false
		}
		d, err := time.ParseDuration(s)
		if err != nil || d < lowest || d > highest || d%time.Millisecond != 0 {
			n.rejectValue(expected)
			return 0, false
		}
		return d, true
	}
}

// listOf reads a list without repetitions that has at least lowest elements.
func listOf[T comparable](lowest int, expected string, read reader[T]) reader[[]T] {
	return func(n node) ([]T, bool) {
		return readList(n, lowest, expected, read, true)
	}
}

func readList[T comparable](n node, lowest int, expected string, read reader[T], distinct bool) ([]T, bool) {
	items, ok := n.items(expected)
	if !ok {
		return nil, false
	}
	if len(items) < lowest {
		n.reject("an empty list", expected)
		return nil, false
	}
	values := make([]T, 0, len(items))
	seen := map[T]bool{}
	for _, item := range items {
		v, good := read(item)
		if good && distinct && seen[v] {
			item.reject(item.describe()+" a second time", "it once")
		}
		ok = ok && good
		seen[v] = good
		values = append(values, v)
	}
	return values, ok
}
