package machine

import (
	"strings"
	"unicode/utf8"

	"github.com/conclave-go/conclave/internal/wire"
)

// A handle may have a label, for people. It is stored with what the handle holds and awaits,
// and so is the time since when. Both began with a feature level: below it a label means
// nothing, whatever its bytes, and no time is stored.

// checkLabel returns nil or the refusal of a handle's label.
func (m *Machine) checkLabel(label []byte) *wire.Reply {
	switch {
	case len(label) == 0 || m.levels.agreed < wire.LevelLabel:
		return nil
	case len(label) > MaxLabel:
		return m.refuse(wire.Code_TOO_LARGE, "the label is too long: at most 128 bytes")
	case !validLabel(string(label)):
		return m.refuse(wire.Code_INVALID, "the label is not UTF-8, or contains a NUL byte")
	}
	return nil
}

func validLabel(label string) bool {
	return len(label) <= MaxLabel && utf8.ValidString(label) && strings.IndexByte(label, 0) < 0
}

// labelOf returns the label of a request. The command's memory is the decoder's.
func (m *Machine) labelOf(c *wire.Lock) string {
	if m.levels.agreed < wire.LevelLabel {
		return ""
	}
	return string(c.Label)
}

// stamp returns the group time to store with a hold or waiter; 0: none.
func (m *Machine) stamp() int64 {
	if m.levels.agreed < wire.LevelLabel {
		return 0
	}
	return m.now
}

// label is that of the owner.
func (l *lock) label() string {
	switch {
	case l.extra == nil:
		return ""
	case l.extra.set != nil:
		return l.extra.set.label
	}
	return l.extra.label
}

func (m *Machine) setLabel(l *lock, label string) {
	if label != l.label() { // else a lock without a label would need its extra
		m.labels += len(label) - len(l.label())
		l.more().label = label
	}
}

// soundLabel reports whether a stored label and time are possible for something that has,
// or has not, an owner.
func (m *Machine) soundLabel(label string, since int64, owned bool) bool {
	if label == "" && since == 0 {
		return true
	}
	return owned && m.levels.agreed >= wire.LevelLabel && since >= 0 && since <= m.now && validLabel(label)
}
