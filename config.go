package conclave

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/remote"
	"github.com/conclave-go/conclave/internal/wire"
)

// Config configures a node. The zero value, like a nil *Config, is a group of one in
// memory. [Open] works on a copy.
//
// Its functions, and the methods of its values, run on goroutines of their own, except for
// Tracer. One that blocks, panics or ends its goroutine costs what it was asked for: a line of
// the log, an event, a connection. It costs no lock, and [Node.Close] is bounded.
type Config struct {
	// Name is the member's name, for people. Default: the host's name.
	Name string
	// Dir is the data directory, of this member alone. Default "": in memory. A
	// member in memory cannot come back after its process has ended.
	Dir string
	// Small makes the node take less disk and memory, for a small machine. Tables of 1 MiB in place of 16
	// buffer writes, so that with a small state the directory has at most 10 MB in place of 120; and 2,000 applied entries
	// in place of 10,000 are kept in memory, so that a member that was down during some seconds of load
	// receives a snapshot. While the disk is slow, writes wait after 4 MiB in place of 64, so large values may take
	// longer. Members of a group may differ. Default: false.
	Small bool
	// Bind is the one TCP address for all traffic. Default: 127.0.0.1:0.
	Bind string
	// Advertise is the address that other members dial. Default: the bound address;
	// required if Bind is a wildcard.
	Advertise string
	// Join lists addresses, host:port, of any members, also of this one. A host that is
	// a name, such as that of a headless Service, may stand for many members (64 at
	// most), change, or not resolve yet: as long as members are missing it is looked up
	// again and again, and each of its addresses is asked. With TLS a certificate is
	// then expected to contain the name. If Dial is set, it gets the name unresolved.
	// Default: none.
	Join []string
	// Expect makes new members form a new group once that many have found each other.
	// It must be the same for all of them, and has no effect on a member that belongs
	// to a group. Default: 1 if Join is empty; else 0, which forms no group.
	Expect int
	// Voters is how many members of a new group vote: 1, 3, 5 or 7. The others are
	// standbys. It must be the same for all members that form the group. Default: 3.
	Voters int
	// Group is the group's name. Members of groups with different names refuse each
	// other. Default: "conclave".
	Group string

	// TLS is used for all traffic, in both directions: each member presents a
	// certificate and verifies that of its peer, by RootCAs unless ClientCAs is set
	// as well. One of them is required: the system's authorities are never trusted.
	// Its callbacks are called for each connection, so certificates and authorities
	// can change while the node runs (see docs/OPERATIONS.md). They have the time of the
	// handshake, as VerifyPeer does. Where this node dials, VerifyConnection finds in ServerName
	// what the certificate must be valid for, an IP address too. KeyLogWriter delays nothing: what it does not take in
	// time is dropped. Default nil: plaintext, which is refused unless all addresses are
	// loopback or Insecure is set.
	TLS *tls.Config
	// Insecure permits plaintext beyond loopback. A process on the network path can
	// then read and alter all traffic. One that only reaches the port cannot act as an
	// existing member, whose key it lacks, but can take part in forming a group.
	Insecure bool
	// VerifyPeer decides on each connection, in both directions and of any kind, after
	// the other end has proved its key and, with TLS, its certificate is verified: an
	// error refuses the connection. The error's text is sent to the peer. It can bind
	// members to certificates, and restrict the processes that form a group. It is
	// called concurrently. A connection for which it has not returned within the time of the
	// handshake, a few seconds, is refused, and so is every further one while 1,024 such
	// calls have not returned. A panic in it is logged and refuses the connection. Default
	// nil: every process that TLS admits.
	VerifyPeer func(Peer) error

	// Listener is used instead of listening on Bind. The node closes it, and Open does
	// if it fails. Accept has to return once it is closed, as the methods of a connection
	// have to; a goroutine of one that does not is left behind. A connection is closed that
	// has not reported its addresses within 5 seconds, or does not heed a deadline; others do not wait for it.
	Listener net.Listener
	// Dial opens connections to host:port, where the host may be a name of Join or
	// of another member's Advertise. It should heed ctx, which has a deadline within a few
	// seconds: a connection that it returns later is closed, and while 4 calls for an
	// address have not returned, further connections to it fail. Default: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// SessionTTL is the TTL of the node's own session: the minimum time from the last
	// renewal by a holder to a grant to another owner. 1 s to 24 h. Default: 10 s.
	// With less than two election timeouts a leader election may cost holders their
	// locks; Open logs a warning then.
	SessionTTL time.Duration
	// SessionChecks names checks of this member that the node's own session depends on, as
	// SessionConfig.Checks does: with [ProcessCheck], locks and leaderships of a
	// process that has crashed are free within a second. While a member of the group runs
	// a build without that check, sessions are opened without it. In further groups the
	// built-in ones of them count. Default: none.
	SessionChecks []string
	// HeartbeatInterval is the interval of the leader's heartbeats, 1 ms to 10 s.
	// Default: 100 ms.
	HeartbeatInterval time.Duration
	// ElectionTimeout is how long members wait for a silent leader, from 3 heartbeat
	// intervals to a minute. The crash of a leader's process is noticed sooner.
	// Default: 1 s.
	ElectionTimeout time.Duration

	// LeaderPriority is this member's priority as the leader of the group and of further groups, −100 to 100. A leader transfers leadership to the voter with the
	// highest one above its own, once that voter was up and connected to all others that are for six election timeouts, and while it is up to date; one leadership in each election
	// timeout. A voter from which it has taken over gets none for 60 election timeouts. A leader that steps down, as by Close or for a stalled disk, prefers the highest
	// priority among the voters that are as up to date. The first leader of a new further group is one of the highest priority that is up. Among the voters with the highest priority the
	// leaders of further groups are spread evenly. So a member on a machine that should not lead has −1. It may still lead: for those times after
	// an election or a transfer, and while no voter with a higher one can. It is the setting of this process, as
	// Hazelcast's cp-member-priority is: no other member has to be restarted to change it. A member of an older build neither transfers leadership nor is given it. Default: 0.
	LeaderPriority int

	// Logger logs what operators need to know. Its handler is called on a goroutine of its
	// own, one line after the other. While it blocks, up to 1,024 lines wait, of 1 MiB; then
	// lines are dropped, and their number is logged where they are missing and in Metrics. A
	// level that is enabled later has lines after a second. Default: no log.
	Logger *slog.Logger
	// MeasuredJobs names jobs of the default group, 64 at most, that [Node.Metrics] has one by one: how their runs in this process have ended, and how long
	// ago the last success was, in whatever process. So an alert can report that a job has not run. Default: none.
	MeasuredJobs []string
	// MeasuredGroupJobs names jobs of further groups by the name of their group, as MeasuredJobs does those of the default one; 64 at most in both together.
	// [GroupMetrics] has them while there is a group of that name, and from the beginning again after it was deleted. Default: none.
	MeasuredGroupJobs map[string][]string
	// Events are called when something happens in the node. Default: none.
	Events *Events
	// Tracer traces the node's calls. Default: none.
	Tracer Tracer
	// Limits bounds what the node takes on.
	Limits Limits
}

// Limits bounds what a node takes on. Exceeding a limit returns ErrBusy at once, with no
// effect. Zero fields take the default.
type Limits struct {
	// Calls is the number of calls of this node that may be under way at a time. A
	// call that waits for a grant is not under way; renewals, releases and changes of
	// checks are never refused for it. Default: 8,192; at most 65,536.
	Calls int
	// CallBytes is the size of these calls: keys, values and a little for each.
	// All further groups together have twice as much, and each 1 MiB in any case.
	// Default: 64 MiB; 1 MiB to 1 GiB.
	CallBytes int
}

const (
	maxNodeName = 128 // bytes; gossip carries the name with an address
	maxCalls    = 1 << 16

	minCallBytes     = 1 << 20
	defaultCallBytes = 64 << 20
	maxCallBytes     = 1 << 30
)

// withDefaults returns a copy in which every field is set, or every fault at once.
func (c *Config) withDefaults() (Config, error) {
	var d Config
	if c != nil {
		d = *c
	}
	if d.Name == "" {
		d.Name, _ = os.Hostname() // the name is for people, so it may stay empty
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
	d.SessionChecks, d.MeasuredJobs, d.MeasuredGroupJobs, d.Join = slices.Clone(d.SessionChecks), slices.Clone(d.MeasuredJobs), maps.Clone(d.MeasuredGroupJobs), slices.Clone(d.Join)
	for group, names := range d.MeasuredGroupJobs {
		d.MeasuredGroupJobs[group] = slices.Clone(names)
	}
	d.Limits.complete()
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d, d.validate()
}

// complete sets every field.
func (l *Limits) complete() {
	if l.Calls == 0 {
		l.Calls = 8192
	}
	if l.CallBytes == 0 {
		l.CallBytes = defaultCallBytes
	}
}

// minDuration is the least of every duration that has no larger least value: what is shorter lacks its
// unit, as LockDelay: 15 does.
const minDuration = time.Millisecond

func setDefault(d *time.Duration, to time.Duration) {
	if *d == 0 {
		*d = to
	}
}

func (c *Config) validate() error {
	faults := validateShared(c.Name, c.Group, c.SessionTTL, c.Limits)
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w %s", ErrInvalid, fmt.Sprintf(format, args...)))
		}
	}
	within := func(field string, d, low, high time.Duration) {
		check(d >= low && d <= high, "%s: want %v to %v, got %v", field, low, high, d)
	}
	check(c.Voters == 1 || c.Voters == 3 || c.Voters == 5 || c.Voters == 7, "Voters: want 1, 3, 5 or 7, got %d", c.Voters)
	check(c.Expect >= 0 && c.Expect <= maxExpect, "Expect: want 0 to %d, got %d", maxExpect, c.Expect)
	check(c.Expect != 1 || len(c.Join) == 0, "Expect: 1 forms a group of this member alone, so Join must be empty: set Expect to the number of members that form the group")
	within("HeartbeatInterval", c.HeartbeatInterval, minDuration, 10*time.Second)
	check(c.ElectionTimeout >= 3*c.HeartbeatInterval, "ElectionTimeout: want at least 3 heartbeat intervals of %v, got %v", c.HeartbeatInterval, c.ElectionTimeout)
	check(c.ElectionTimeout <= time.Minute, "ElectionTimeout: want at most %v, got %v", time.Minute, c.ElectionTimeout)
	check(c.LeaderPriority >= -wire.MaxLeaderPriority && c.LeaderPriority <= wire.MaxLeaderPriority, "LeaderPriority: want -%d to %[1]d, got %d", wire.MaxLeaderPriority, c.LeaderPriority)
	check(c.TLS == nil || hasCertificates(c.TLS), "TLS: want a certificate, which a member presents when it is dialed and when it dials, got none: "+
		"set Certificates, or both GetCertificate and GetClientCertificate")
	check(c.TLS == nil || namesAuthorities(c.TLS), "TLS: want the authorities that issue the members' certificates, got none, so that the system's would be trusted: "+
		"set RootCAs, and ClientCAs if they differ for members that dial")
	faults = append(faults, validChecks("SessionChecks", c.SessionChecks)...)
	faults = append(faults, validMeasuredJobs(c)...)
	faults = append(faults, c.validateAddresses()...)
	return errors.Join(faults...)
}

// validateShared checks the settings that nodes and clients have in common.
func validateShared(name, group string, ttl time.Duration, l Limits) (faults []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w %s", ErrInvalid, fmt.Sprintf(format, args...)))
		}
	}
	check(len(name) <= maxNodeName && validText("name", name) == nil, "Name: want at most %d bytes of UTF-8 without NUL, got %s", maxNodeName, quote(name))
	check(len(group) <= maxNodeName && utf8.ValidString(group), "Group: want at most %d bytes of UTF-8, got %s", maxNodeName, quote(group))
	low, high := duration(machine.MinTTL), duration(machine.MaxTTL)
	check(ttl >= low && ttl <= high, "SessionTTL: want %v to %v, got %v", low, high, ttl)
	check(l.Calls > 0 && l.Calls <= maxCalls, "Limits.Calls: want 1 to %d, got %d", maxCalls, l.Calls)
	check(l.CallBytes >= minCallBytes && l.CallBytes <= maxCallBytes,
		"Limits.CallBytes: want %d to %d, got %d", minCallBytes, maxCallBytes, l.CallBytes)
	return faults
}

func hasCertificates(t *tls.Config) bool {
	return len(t.Certificates) > 0 || (t.GetCertificate != nil || t.GetConfigForClient != nil) && t.GetClientCertificate != nil
}

// namesAuthorities reports whether neither direction trusts the authorities of the system,
// which issue certificates to all.
func namesAuthorities(t *tls.Config) bool {
	return t.RootCAs != nil || verifiesItself(t) && (t.ClientCAs != nil || t.GetConfigForClient != nil)
}

// maxExpect bounds the members that form a group.
const maxExpect = 64

func (c *Config) validateAddresses() []error {
	var faults []error
	report := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w %s", ErrInvalid, fmt.Sprintf(format, args...)))
	}
	check := func(field, addr string, dialed bool) {
		faults = append(faults, validateAddress(field, addr, dialed, c.TLS != nil || c.Insecure)...)
	}
	bind := c.Bind
	if c.Listener != nil {
		bind = c.Listener.Addr().String()
	}
	// The address of a listener that is not TCP has a form of its own, so it needs an
	// Advertise; what can reach it is the application's responsibility.
	if _, _, err := net.SplitHostPort(bind); err == nil || c.Advertise == "" {
		check("Bind", bind, false)
	}
	if c.Advertise != "" {
		check("Advertise", c.Advertise, true)
	} else if host, _, err := net.SplitHostPort(bind); err == nil && wildcard(host) {
		report("Bind: %q is a wildcard: set Advertise to the address that other members dial", bind)
	}
	for _, addr := range c.Join {
		check("Join", addr, true)
	}
	return faults
}

// validateAddress checks an address. beyond says that it need not be a loopback address.
func validateAddress(field, addr string, dialed, beyond bool) (faults []error) {
	report := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w %s", ErrInvalid, fmt.Sprintf(format, args...)))
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		report("%s: want host:port, got %q", field, addr)
		return faults
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || dialed && number == 0 {
		report("%s: want a port that can be dialed, got %q", field, addr)
	}
	if dialed && wildcard(host) {
		report("%s: want an address that can be dialed, got the wildcard %q", field, addr)
	}
	if !beyond && !loopback(host) {
		report("%s: %q is not a loopback address, and TLS is not set: set TLS, or Insecure if the network is trusted", field, addr)
	}
	return faults
}

// warn logs settings that are valid and often a mistake.
func (c *Config) warn() {
	if c.SessionTTL < 2*c.ElectionTimeout {
		c.Logger.Warn("SessionTTL is less than two election timeouts: a leader election may cost holders their locks",
			"ttl", c.SessionTTL, "election", c.ElectionTimeout)
	}
}

func wildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// loopback reports whether an address is certain to stay on this machine. Names other
// than localhost may resolve to anything.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// validName checks a name: 1 to 512 bytes of UTF-8 without NUL.
func validName(name string) error {
	if name == "" {
		return fmt.Errorf("%w name: it is empty: want 1 to %d bytes", ErrInvalid, machine.MaxName)
	}
	return validText("name", name)
}

// validPrefixes checks what names are compared with, as the prefix of a listing and the name behind
// which it begins: none, or what a name can be. What a node takes, and JSON to a member does not, a client
// would send as something else.
func validPrefixes(texts ...string) error {
	for _, text := range texts {
		if err := validText("prefix", text); err != nil {
			return err
		}
	}
	return nil
}

func validText(what, text string) error {
	switch {
	case len(text) > machine.MaxName:
		return fmt.Errorf("%w: %s of %d bytes, the limit is %d", ErrTooLarge, what, len(text), machine.MaxName)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w %s: it is not UTF-8", ErrInvalid, what)
	case strings.IndexByte(text, 0) >= 0:
		return fmt.Errorf("%w %s: it contains NUL", ErrInvalid, what)
	}
	return nil
}

// Peer is the other end of a connection between two processes of a group, for
// Config.VerifyPeer. Its process has proved that it holds the key of Member.
type Peer struct {
	Member MemberID // the fingerprint of its key
	// Client says that the process is no member, but a client ([Dial]), and Member its ID.
	Client bool
	Name   string // as it states
	Addr   string // host:port that it advertises, as it states
	// TLS is the state of the connection, with the verified certificates; nil:
	// plaintext.
	TLS *tls.ConnectionState
}

func peerOf(p remote.Peer) Peer {
	return Peer{
		Member: MemberID(p.Member), Client: p.Inbound && p.Kind == wire.Kind_CLIENT, Name: p.Name, Addr: p.Advertise, TLS: p.TLS,
	}
}
