package contract

// told returns a schema in which every object that declares members is closed by
// additionalProperties, which is what providers know. It does not see what allOf,
// $ref and the like declare: where these work together all stay open, or nothing
// could keep to them.
func told(schema any) any {
	var t teller
	out := t.tell(schema, true)
	if t.shared {
		out = t.tell(schema, true)
	}
	return out
}

// A teller makes the schema that is told.
type teller struct {
	// shared says that a reference was met that is not all that describes its
	// value: what it refers to stays open.
	shared bool
}

// together are the keywords whose schemas describe the same value as the schema
// that they stand in.
var together = []string{
	"allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if", "then", "else", "dependentSchemas", "dependencies",
}

// tell returns a schema; alone says that nothing else describes the same value.
func (t *teller) tell(schema any, alone bool) any {
	s, ok := schema.(map[string]any)
	if !ok {
		return schema
	}
	_, members := s["properties"].(map[string]any)
	parts := count(s, together)
	_, ref := s["$ref"]
	_, dynamic := s["$dynamicRef"]
	t.shared = t.shared || (ref || dynamic) && (!alone || members || parts > 1)
	out := make(map[string]any, len(s)+1)
	for k, v := range s {
		switch k {
		case "properties", "patternProperties":
			out[k] = t.tellMap(v, true)
		case "$defs", "definitions":
			out[k] = t.tellMap(v, !t.shared)
		case "dependentSchemas", "dependencies":
			out[k] = t.tellMap(v, false)
		case "items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties":
			out[k] = t.tell(v, true)
		case "prefixItems":
			out[k] = t.tellList(v, true)
		case "anyOf", "oneOf":
			out[k] = t.tellList(v, alone && !members && parts == 1)
		case "allOf":
			out[k] = t.tellList(v, false)
		case "then", "else":
			out[k] = t.tell(v, false)
		default: // values, and questions such as if and not
			out[k] = v
		}
	}
	if alone && members && parts == 0 && count(s, []string{"additionalProperties", "unevaluatedProperties"}) == 0 {
		out["additionalProperties"] = false
	}
	return out
}

func (t *teller) tellList(v any, alone bool) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = t.tell(s, alone)
	}
	return out
}

func (t *teller) tellMap(v any, alone bool) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := make(map[string]any, len(m))
	for name, s := range m {
		out[name] = t.tell(s, alone)
	}
	return out
}

// count returns how many of the names a schema has.
func count(s map[string]any, names []string) int {
	n := 0
	for _, name := range names {
		if _, ok := s[name]; ok {
			n++
		}
	}
	return n
}
