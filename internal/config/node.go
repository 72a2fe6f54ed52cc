package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
)

// node is a value in a document together with its place.
type node struct {
	doc          *document
	path         string
	val          ast.Node // nil: nothing there
	line, column int
	key          place // of the member's name; zero in a list
}

// place is a line and a column, both from 1.
type place struct{ line, column int }

// reject records a fault at the node.
func (n node) reject(found, expected string) {
	n.doc.faults = append(n.doc.faults, &Fault{
		File: n.doc.file, Line: n.line, Column: n.column, Path: n.path, Found: found, Expected: expected,
	})
}

// rejectName is reject for a fault in the member's name and not in its value.
func (n node) rejectName(found, expected string) {
	n.line, n.column = n.key.line, n.key.column
	n.reject(found, expected)
}

// rejectValue records a fault whose "found" is the node's value.
func (n node) rejectValue(expected string) { n.reject(n.describe(), expected) }

// describe says what the node holds, short and in words.
func (n node) describe() string {
	if n.empty() {
		return "nothing"
	}
	switch v := n.val.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return n.describeText(v.Value)
	case *ast.LiteralNode:
		return n.describeText(v.Value.Value)
	case *ast.BoolNode:
		return "the value " + v.GetToken().Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		if n.doc.secret {
			return "a number"
		}
		return "the number " + clip(v.GetToken().Value)
	}
	return "something else"
}

func (n node) describeText(text string) string {
	if n.doc.secret {
		return fmt.Sprintf("a text of %d characters", utf8.RuneCountInString(text))
	}
	return strconv.Quote(clip(text))
}

// empty reports whether nothing, or only null, stands at the node.
func (n node) empty() bool {
	if n.val == nil {
		return true
	}
	_, null := n.val.(*ast.NullNode)
	return null
}

// at returns a node below n. A scalar is placed where it stands; anything else
// at its key, because the library places a block at its first colon.
func (n node) at(path string, val ast.Node, line, column int) node {
	switch val.(type) {
	case *ast.StringNode, *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode:
		if l, c := position(val.GetToken()); l > 0 {
			line, column = l, c
		}
	}
	return node{doc: n.doc, path: path, val: val, line: line, column: column}
}

// items returns the elements of a list.
func (n node) items(expected string) ([]node, bool) {
	list, ok := n.val.(*ast.SequenceNode)
	if !ok {
		n.rejectValue(expected)
		return nil, false
	}
	nodes := make([]node, 0, len(list.Values))
	for i, v := range list.Values {
		line, column := position(v.GetToken())
		if line == 0 {
			line, column = n.line, n.column
		}
		nodes = append(nodes, n.at(fmt.Sprintf("%s[%d]", n.path, i), v, line, column))
	}
	return nodes, true
}

// object is a mapping that remembers which members were asked for, so that the
// code that reads a mapping is the only list of its members.
type object struct {
	node
	members map[string]node
	faulty  map[string]bool // members whose own value was rejected
	asked   []string
}

// object reads the node as a mapping; nothing counts as an empty one. Members
// that stand there twice are rejected and the first one is kept.
func (n node) object(expected string) (*object, bool) {
	o := &object{node: n, members: map[string]node{}, faulty: map[string]bool{}}
	if n.empty() {
		return o, true
	}
	mapping, ok := n.val.(ast.MapNode)
	if !ok {
		n.rejectValue(expected)
		return nil, false
	}
	for it := mapping.MapRange(); it.Next(); {
		o.add(it.KeyValue())
	}
	return o, true
}

func (o *object) add(kv *ast.MappingValueNode) {
	key := kv.Key.GetToken()
	name := key.Value
	if text, ok := kv.Key.(*ast.StringNode); ok {
		name = text.Value
	}
	line, column := position(key)
	member := o.at(o.join(name), kv.Value, line, column)
	member.key = place{line, column}
	first, twice := o.members[name]
	if !twice {
		o.members[name] = member
		return
	}
	member.rejectName("the member a second time", fmt.Sprintf("it once (first on line %d)", first.key.line))
}

var plainMember = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// join appends a member's name to the object's path. A name that would blur the
// path is quoted.
func (o *object) join(name string) string {
	if !plainMember.MatchString(name) {
		return o.path + "[" + strconv.Quote(clip(name)) + "]"
	}
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

// member returns the named member, if it is there, and marks it as known.
func (o *object) member(name string) (node, bool) {
	o.asked = append(o.asked, name)
	n, ok := o.members[name]
	return n, ok
}

// has reports whether the member is there, sound or not.
func (o *object) has(name string) bool {
	_, ok := o.members[name]
	return ok
}

// spot is where a fault about the member is reported: at the member or, if the
// file leaves it out, at the object.
func (o *object) spot(name string) node {
	if n, ok := o.members[name]; ok {
		return n
	}
	n := o.node
	n.path = o.join(name)
	return n
}

// sound reports whether none of the members was rejected. What members demand of
// each other is checked only if they are, so that one slip gives one message.
func (o *object) sound(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return o.faulty[name] })
}

// each calls f for all members in the order of their names: for mappings whose
// keys the user chooses.
func (o *object) each(f func(name string, n node)) {
	for _, name := range slices.Sorted(maps.Keys(o.members)) {
		f(name, o.members[name])
	}
}

// finish rejects the members that nobody asked for.
func (o *object) finish() {
	slices.Sort(o.asked)
	o.each(func(name string, n node) {
		if slices.Contains(o.asked, name) {
			return
		}
		if n.doc.secret { // the name may be a token in the wrong place
			n.path = o.path
		}
		n.rejectName("an unknown member", "one of "+strings.Join(o.asked, ", "))
	})
}

// clip shortens a text for a message.
func clip(text string) string {
	if utf8.RuneCountInString(text) <= maxQuotedRunes {
		return text
	}
	return string([]rune(text)[:maxQuotedRunes]) + "…"
}
