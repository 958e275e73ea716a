package conclavehttp

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/display"
)

// folderSeparator is what ends the name of a folder of keys.
const folderSeparator = "/"

// listKeys lists keys and folders; of those that a process or session holds, keys only.
func (a *answerData) listKeys(ctx context.Context, group *conclave.Group, q query, r *reading) {
	separator := folderSeparator
	if !a.of.all() {
		separator = ""
		if a.Err = a.of.readSessions(ctx, group, r); a.Err != nil {
			return
		}
	}
	a.Keys, a.Next, a.Err = firstRows(r, group.KV().Browse(ctx, q.prefix, separator, conclave.After(q.after)), func(k conclave.KeyInfo) string { return k.Key },
		func(k *conclave.KeyInfo) bool { return a.of.all() || a.of.keys[k.Session] })
}

// readSessions reads the sessions of the process. The keys have as much of the reading as if there were none.
func (o *ownership) readSessions(ctx context.Context, group *conclave.Group, r *reading) error {
	o.keys = make(map[conclave.SessionID]bool)
	if o.process == 0 {
		o.keys[o.session] = true
		return nil
	}
	for s, err := range group.Sessions(ctx) {
		switch {
		case err != nil:
			return err
		case !r.more():
			return fmt.Errorf("%w: the group has more sessions than are read for this page: choose one of the process's", conclave.ErrTooLarge)
		case s.Node == o.process:
			o.keys[s.ID] = true
		}
		r.looked++
	}
	*r = *newReading()
	return nil
}

// keyValue is the beginning of a key's value, for people.
type keyValue struct {
	Text   string
	Binary bool // Text is hexadecimal
	More   bool // the value is longer
}

const maxBinary = 24 // bytes of a value that is no text that are shown

// valueOf returns what is shown of a value.
func valueOf(k conclave.KeyInfo) keyValue {
	shown := k.Value[:min(len(k.Value), maxValue)]
	text := shown
	if len(shown) < k.Size { // the last character may not be whole
		for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
			if last := len(text) - i; utf8.RuneStart(text[last]) {
				if !utf8.FullRune(text[last:]) {
					text = text[:last]
				}
				break
			}
		}
	}
	if utf8.Valid(text) && bytes.IndexByte(text, 0) < 0 {
		return keyValue{Text: display.Name(string(text)), More: len(text) < k.Size}
	}
	shown = shown[:min(len(shown), maxBinary)]
	return keyValue{Text: fmt.Sprintf("% x", shown), Binary: true, More: len(shown) < k.Size}
}

// Folder returns the folder that a prefix is in, or begins in; "": none.
func (a answerData) Folder() string {
	return a.Prefix[:strings.LastIndex(strings.TrimSuffix(a.Prefix, folderSeparator), folderSeparator)+1]
}
