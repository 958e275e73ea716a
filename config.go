package conclave

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/conclave-go/conclave/internal/machine"
)

// Config says how a node is to be run. The zero value, like a nil *Config, is a
// group of one in memory. [Open] works on a copy.
type Config struct {
	// Name is the member's name for people. Default: the host's name.
	Name string
	// Dir is the data directory, for this member alone. Default "": in memory,
	// gone with the process; such a member can not come back.
	Dir string
	// Bind is the one TCP address for everything. Default 127.0.0.1:0.
	Bind string
	// Advertise is what the others dial. Default: the bound address; required
	// when Bind is a wildcard.
	Advertise string
	// Join are addresses, host:port, of any members. Names are looked up again
	// and again. Default: none.
	Join []string
	// Expect makes new members form a new group once so many have found each
	// other. It has to be the same for all of them, and does nothing once the
	// member belongs to a group. Default: 1 when Join is empty, else 0, which
	// forms none.
	Expect int
	// Voters is how many of the group's members vote: 1, 3, 5 or 7. The others
	// stand by. Default 3.
	Voters int
	// Group is the group's name; members of differently named groups refuse
	// each other. Default "conclave".
	Group string

	// TLS is for all traffic, both ways: each member shows a certificate and
	// verifies the other's. Default nil: plaintext, which is refused unless all
	// addresses are loopback or Insecure is set.
	TLS *tls.Config
	// Insecure allows plaintext beyond loopback. Anybody who can reach the port
	// can then take any lock.
	Insecure bool

	// Listener is used instead of listening on Bind. The node closes it.
	Listener net.Listener
	// Dial opens connections. Default: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// SessionTTL is that of the node's own session: how long a holder may be
	// silent before the group may hand its locks to others. 1 s to 24 h.
	// Default 10 s. With less than two election timeouts a change of leader may
	// cost holders their locks; there is a line in the log then.
	SessionTTL time.Duration
	// HeartbeatInterval is that of the leader. 1 ms to 10 s. Default 100 ms.
	HeartbeatInterval time.Duration
	// ElectionTimeout is how long members wait for a silent leader; at least 3
	// heartbeats. A leader whose process died is noticed sooner. Default 1 s.
	ElectionTimeout time.Duration

	// Logger gets what operators may want to read. Default: silent.
	Logger *slog.Logger
	// Events tells the application what happens. Default: nobody.
	Events *Events
	// Limits bounds what this node takes on.
	Limits Limits
}

// Limits bounds what a node takes on. Passing a limit gives ErrTooLarge at
// once, with no effect. Zero fields take the default.
type Limits struct {
	// Calls is the number of calls of this node that may be under way at once.
	// Waiting for a lock is not under way; renewals and releases are not
	// counted. Default 8,192; at most 65,536.
	Calls int
}

const (
	maxNodeName = 128 // bytes, so that gossip can carry it with an address
	maxCalls    = 1 << 16
)

// withDefaults returns a copy in which every field is set, or all faults at once.
func (c *Config) withDefaults() (Config, error) {
	var d Config
	if c != nil {
		d = *c
	}
	if d.Name == "" {
		d.Name, _ = os.Hostname() // the name is for people; none will do
	}
	if d.Bind == "" {
		d.Bind = "127.0.0.1:0"
	}
	if d.Expect == 0 && len(d.Join) == 0 {
		d.Expect = 1
	}
	if d.Voters == 0 {
		d.Voters = 3
	}
	if d.Group == "" {
		d.Group = "conclave"
	}
	setDefault(&d.SessionTTL, 10*time.Second)
	setDefault(&d.HeartbeatInterval, 100*time.Millisecond)
	setDefault(&d.ElectionTimeout, time.Second)
	if d.Limits.Calls == 0 {
		d.Limits.Calls = 8192
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d, d.validate()
}

func setDefault(d *time.Duration, to time.Duration) {
	if *d == 0 {
		*d = to
	}
}

func (c *Config) validate() error {
	var faults []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...)))
		}
	}
	within := func(what string, d, low, high time.Duration) {
		need(d >= low && d <= high, "%s is %v; it has to be from %v to %v", what, d, low, high)
	}
	need(len(c.Name) <= maxNodeName && utf8.ValidString(c.Name), "Name has to be UTF-8 of at most %d bytes", maxNodeName)
	need(len(c.Group) <= maxNodeName && utf8.ValidString(c.Group), "Group has to be UTF-8 of at most %d bytes", maxNodeName)
	need(c.Voters == 1 || c.Voters == 3 || c.Voters == 5 || c.Voters == 7, "Voters is %d; it has to be 1, 3, 5 or 7", c.Voters)
	need(c.Expect >= 0, "Expect is %d; it cannot be negative", c.Expect)
	need(c.Expect <= maxExpect, "Expect is %d; a group is formed by at most %d members", c.Expect, maxExpect)
	need(c.Expect != 1 || len(c.Join) == 0, "Expect 1 forms a group of this member alone, so Join has to be empty; or Expect as many members as there will be")
	within("SessionTTL", c.SessionTTL, duration(machine.MinTTL), duration(machine.MaxTTL))
	within("HeartbeatInterval", c.HeartbeatInterval, time.Millisecond, 10*time.Second)
	need(c.ElectionTimeout >= 3*c.HeartbeatInterval, "ElectionTimeout is %v; it has to be at least 3 heartbeats of %v", c.ElectionTimeout, c.HeartbeatInterval)
	need(c.ElectionTimeout <= time.Minute, "ElectionTimeout is %v; it has to be at most a minute", c.ElectionTimeout)
	need(c.Limits.Calls > 0 && c.Limits.Calls <= maxCalls, "Limits.Calls is %d; it has to be from 1 to %d", c.Limits.Calls, maxCalls)
	faults = append(faults, c.validateAddresses()...)
	return errors.Join(faults...)
}

// maxExpect bounds the founders of a group.
const maxExpect = 64

func (c *Config) validateAddresses() []error {
	var faults []error
	check := func(what, addr string, dialled bool) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			faults = append(faults, fmt.Errorf("%w: %s %q has to be host:port", ErrInvalid, what, addr))
			return
		}
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || dialled && number == 0 {
			faults = append(faults, fmt.Errorf("%w: %s %q has no usable port", ErrInvalid, what, addr))
		}
		if dialled && wildcard(host) {
			faults = append(faults, fmt.Errorf("%w: %s %q is a wildcard; others cannot dial it", ErrInvalid, what, addr))
		}
		if c.TLS == nil && !c.Insecure && !loopback(host) {
			faults = append(faults, fmt.Errorf("%w: %s %q is not loopback and TLS is not set: set TLS, or Insecure if the network itself is trusted", ErrInvalid, what, addr))
		}
	}
	bind := c.Bind
	if c.Listener != nil {
		bind = c.Listener.Addr().String()
	}
	// A listener of another kind than TCP has an address of its own kind, so
	// it needs an Advertise, and what can reach it is its maker's business.
	if _, _, err := net.SplitHostPort(bind); err == nil || c.Advertise == "" {
		check("Bind", bind, false)
	}
	if c.Advertise != "" {
		check("Advertise", c.Advertise, true)
	} else if host, _, err := net.SplitHostPort(bind); err == nil && wildcard(host) {
		faults = append(faults, fmt.Errorf("%w: Bind %q is a wildcard: set Advertise to the address that others dial", ErrInvalid, bind))
	}
	for _, addr := range c.Join {
		check("Join", addr, true)
	}
	return faults
}

func wildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// loopback reports whether an address is certain to stay on this machine. What
// a name other than localhost stands for can change.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// validName checks the name of a lock: 1 to 512 bytes of UTF-8 without NUL.
func validName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty", ErrInvalid)
	case len(name) > machine.MaxName:
		return fmt.Errorf("%w: the name has %d bytes of at most %d", ErrTooLarge, len(name), machine.MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the name is not UTF-8", ErrInvalid)
	}
	for i := range len(name) {
		if name[i] == 0 {
			return fmt.Errorf("%w: the name contains NUL", ErrInvalid)
		}
	}
	return nil
}
