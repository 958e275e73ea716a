package consulapi

import (
	"bytes"
	"encoding/json"
	"errors"
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
	f := make(fields)
	d := json.NewDecoder(bytes.NewReader(body))
	err := members(d, '{', func() error {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string) // or the decoder has refused it
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		lower := strings.ToLower(name)
		switch _, twice := f[lower]; {
		case twice:
			return invalid("field %q is there more than once", shorten(name))
		case !slices.Contains(known, lower) && !isZero(raw):
			return invalid("field %q is not supported", shorten(name))
		case len(f) == maxFields:
			return invalid("more than %d fields", maxFields)
		}
		f[lower] = raw
		return nil
	})
	var refused *httpError
	if err != nil && !errors.As(err, &refused) {
		err = invalid("Request decode failed: %v", err)
	}
	return f, err
}

const (
	maxFields = 64
	maxZero   = 4 << 10 // bytes of a value that asks for nothing
)

var errBehind = errors.New("want one JSON value of the right type and nothing behind it")

// members calls each for each member of an object or an array, which it must decode; null
// has none. What is decoded takes a multiple of its JSON, so each can end it early.
func members(d *json.Decoder, kind json.Delim, each func() error) error {
	first, err := d.Token()
	if err != nil {
		return err
	}
	if first != nil {
		if first != kind {
			return errBehind
		}
		for d.More() {
			if err := each(); err != nil {
				return err
			}
		}
		if _, err := d.Token(); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != io.EOF {
		return errBehind
	}
	return nil
}

// isZero reports whether a value asks for nothing.
func isZero(raw json.RawMessage) bool {
	var v any
	if len(raw) > maxZero || json.Unmarshal(raw, &v) != nil {
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
