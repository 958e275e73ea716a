package consulapi

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
)

// fields are the members of a JSON object, by their names in lower case: as in Consul, case
// does not matter.
type fields map[string]json.RawMessage

// parseFields parses a JSON object with these members. Others must have their zero value.
func parseFields(body []byte, known ...string) (fields, error) {
	var raw map[string]json.RawMessage
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&raw); err != nil {
		return nil, invalid("Request decode failed: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, invalid("Request decode failed: want one JSON object and nothing behind it")
	}
	f := make(fields, len(raw))
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		lower := strings.ToLower(name)
		if _, ok := f[lower]; ok {
			return nil, invalid("field %q is there more than once", shorten(name))
		}
		if !slices.Contains(known, lower) && !isZero(raw[name]) {
			return nil, invalid("field %q is not supported", shorten(name))
		}
		f[lower] = raw[name]
	}
	return f, nil
}

// isZero reports whether a value asks for nothing.
func isZero(raw json.RawMessage) bool {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return false
	}
	return empty(v)
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case float64:
		return v == 0
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, member := range v {
			if !empty(member) {
				return false
			}
		}
		return true
	}
	return false
}

// into sets *v to a member, if it is there and not null.
func (f fields) into(name string, v any) error {
	raw, ok := f[strings.ToLower(name)]
	if !ok || string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return invalid("Request decode failed: field %s: %v", name, err)
	}
	return nil
}

// texts sets strings to members.
func (f fields) texts(to map[string]*string) error {
	for _, name := range slices.Sorted(maps.Keys(to)) {
		if err := f.into(name, to[name]); err != nil {
			return err
		}
	}
	return nil
}
