package conclave

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Sequencer names one acquisition of a key by a session, after Chubby. A holder sends it
// with its requests. The recipient calls Node.CheckSequencer, or puts OpCheckSequencer
// into its transaction, to find out whether the sender still holds the key. A sequencer
// that is stale stays stale.
type Sequencer struct {
	Key       string
	LockIndex uint64
	Session   SessionID
}

// Sequencer returns the sequencer of the key's current acquisition. For a key that no
// session holds, the result is never valid.
func (e Entry) Sequencer() Sequencer {
	return Sequencer{Key: e.Key, LockIndex: e.LockIndex, Session: e.Session}
}

// String prints the sequencer as session:lock index:key, for ParseSequencer.
func (s Sequencer) String() string {
	return fmt.Sprintf("%s:%d:%s", s.Session, s.LockIndex, s.Key)
}

// MarshalText returns what String prints.
func (s Sequencer) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseSequencer.
func (s *Sequencer) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSequencer(string(text))
	return err
}

// ParseSequencer parses what Sequencer.String prints. It returns ErrInvalid, or
// ErrTooLarge for the key, for anything that cannot be a valid sequencer.
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

// parseLockIndex accepts only what printing yields: no sign and no leading zeros.
func parseLockIndex(s string) (uint64, error) {
	index, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(index, 10) != s {
		return 0, fmt.Errorf("%w lock index: got %q", ErrInvalid, s)
	}
	return index, nil
}

func (s Sequencer) validate() error {
	if s.Session == (SessionID{}) || s.LockIndex == 0 {
		return fmt.Errorf("%w sequencer: want a session and a lock index, as Entry.Sequencer of a locked key has", ErrInvalid)
	}
	return validName(s.Key)
}

// CheckSequencer returns nil if the session still holds the key by the acquisition that
// s names, and an error that wraps ErrStaleSequencer otherwise. It is linearizable and
// blocks like KV.Get. ErrInvalid and ErrTooLarge: s cannot be valid. Further errors:
// ErrUnavailable with ctx's; ErrBusy with too many reads under way; ErrClosed.
//
// The holder may change between the check and what is done about it; OpCheckSequencer
// makes the check part of a write to the group's keys.
func (g *Group) CheckSequencer(ctx context.Context, s Sequencer) error {
	err := s.validate()
	var valid bool
	if err == nil {
		valid, err = ask[bool](ctx, g, machine.SequencerQuery{Key: s.Key, LockIndex: s.LockIndex, Session: wire.ID(s.Session)})
	}
	if err == nil && !valid {
		err = ErrStaleSequencer
	}
	return fault("check sequencer", s.Key, err)
}
