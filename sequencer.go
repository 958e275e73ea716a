package conclave

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/conclave-go/conclave/internal/machine"
)

// Sequencer names one acquisition of a key by a session, after Chubby. A holder
// sends it along with its requests; who receives it asks Node.CheckSequencer, or
// puts OpCheckSequencer into what it does, to find out whether the sender still
// holds the key. It never comes true again once it is stale.
type Sequencer struct {
	Key       string
	LockIndex uint64
	Session   SessionID
}

// Sequencer names the present acquisition of the key. Of a key that nobody holds
// it is one that never was true.
func (e Entry) Sequencer() Sequencer {
	return Sequencer{Key: e.Key, LockIndex: e.LockIndex, Session: e.Session}
}

// String prints the sequencer as session:lock index:key, for ParseSequencer.
func (s Sequencer) String() string {
	return fmt.Sprintf("%s:%d:%s", s.Session, s.LockIndex, s.Key)
}

// MarshalText is String.
func (s Sequencer) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseSequencer.
func (s *Sequencer) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSequencer(string(text))
	return err
}

// ParseSequencer reads what Sequencer.String has printed. ErrInvalid, or
// ErrTooLarge for the key: it is nothing that could be true.
func ParseSequencer(s string) (Sequencer, error) {
	session, rest, _ := strings.Cut(s, ":")
	index, key, _ := strings.Cut(rest, ":")
	parsed := Sequencer{Key: key}
	var err error
	if parsed.Session, err = parseSessionID(session); err == nil {
		parsed.LockIndex, err = parseLockIndex(index)
	}
	if err == nil {
		err = parsed.validate()
	}
	if err != nil {
		return Sequencer{}, fault("parse sequencer", s, err)
	}
	return parsed, nil
}

// parseLockIndex takes only what printing makes: no sign, and no zeros in front.
func parseLockIndex(s string) (uint64, error) {
	index, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(index, 10) != s {
		return 0, fmt.Errorf("%w: %q is no lock index", ErrInvalid, s)
	}
	return index, nil
}

func (s Sequencer) validate() error {
	if s.Session == (SessionID{}) || s.LockIndex == 0 {
		return fmt.Errorf("%w: a sequencer has a session and a lock index; get one from an Entry that a session holds", ErrInvalid)
	}
	return validName(s.Key)
}

// CheckSequencer returns nil if the session still holds the key, by the
// acquisition that the sequencer names, and an error that wraps ErrStaleFence
// otherwise. It is linearizable and blocks like KV.Get. ErrInvalid or ErrTooLarge:
// it cannot be true. ErrUnavailable, ErrClosed.
//
// Between the check and what is done about it the holder may change; a write to
// the group's keys can be made part of the check, with OpCheckSequencer.
func (n *Node) CheckSequencer(ctx context.Context, s Sequencer) error {
	err := s.validate()
	var holds bool
	if err == nil {
		err = n.read(ctx, func(m *machine.Machine) {
			e := m.Key(s.Key)
			holds = e != nil && SessionID(e.Session) == s.Session && e.LockIndex == s.LockIndex
		})
	}
	if err == nil && !holds {
		err = fmt.Errorf("%w: the session does not hold the key by it any more", ErrStaleFence)
	}
	return fault("check sequencer", s.Key, err)
}

// ParseSessionID reads what SessionID.String has printed, in lower or upper case.
// ErrInvalid: it is no UUID.
func ParseSessionID(s string) (SessionID, error) {
	id, err := parseSessionID(s)
	return id, fault("parse session ID", s, err)
}

func parseSessionID(s string) (id SessionID, err error) {
	digits := strings.ReplaceAll(s, "-", "")
	if len(digits) == 2*len(id) {
		_, err = hex.Decode(id[:], []byte(digits))
	}
	if err != nil || !strings.EqualFold(id.String(), s) {
		return SessionID{}, fmt.Errorf("%w: %q is no session ID; it looks like 0123abcd-0123-0123-0123-0123456789ab", ErrInvalid, s)
	}
	return id, nil
}
