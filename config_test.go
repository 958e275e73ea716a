package conclave_test

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Open reports all faults of a configuration at once and does not touch the directory.
func TestConfig_AllFaultsAtOnce(t *testing.T) {
	c := conclave.Config{
		Name: strings.Repeat("x", 129), Group: "\xff", Bind: "0.0.0.0", Join: []string{"nowhere", "127.0.0.1:0", "0.0.0.0:1"},
		Expect: 1, Voters: 4, SessionTTL: time.Millisecond, HeartbeatInterval: time.Minute, ElectionTimeout: time.Second, LeaderPriority: 101,
		Limits: conclave.Limits{Calls: -1, CallBytes: 1}, SessionChecks: []string{"twice", "twice"}, MeasuredJobs: []string{"", "two", "two"}, Dir: filepath.Join(t.TempDir(), "data"),
	}
	grouptest.WantOpenError(t, c, conclave.ErrInvalid, "invalid Name: ", "invalid Group: ", `Bind: want host:port, got "0.0.0.0"`, `Join: want host:port, got "nowhere"`,
		`Join: want a port that can be dialed, got "127.0.0.1:0"`, `got the wildcard "0.0.0.0:1"`, "Join must be empty", "1, 3, 5 or 7",
		"SessionTTL: want 1s to 24h0m0s, got 1ms", "HeartbeatInterval: want ", "at least 3 heartbeat intervals", "LeaderPriority: want -100 to 100, got 101", "Limits.Calls: want ", "Limits.CallBytes: want ",
		`SessionChecks: "twice" is there twice`, "MeasuredJobs: invalid name", `MeasuredJobs: "two" is there twice`)
	if _, err := os.Stat(c.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was touched: %v", err)
	}
}

func TestConfig_Addresses(t *testing.T) {
	beyond, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		config conclave.Config
		part   string
	}{
		"wildcard without Advertise":           {conclave.Config{Bind: "0.0.0.0:0", Insecure: true}, "set Advertise to the address that other members dial"},
		"IPv6 wildcard":                        {conclave.Config{Bind: "[::]:0", Insecure: true}, "set Advertise"},
		"wildcard without host":                {conclave.Config{Bind: ":7000", Insecure: true}, "set Advertise"},
		"Advertise is a wildcard":              {conclave.Config{Bind: "0.0.0.0:0", Advertise: "0.0.0.0:7000", Insecure: true}, "got the wildcard"},
		"plaintext on a wildcard":              {conclave.Config{Bind: "0.0.0.0:0", Advertise: "127.0.0.1:7000"}, "set TLS, or Insecure if the network is trusted"},
		"plaintext on a network address":       {conclave.Config{Bind: "192.0.2.1:7000"}, "set TLS, or Insecure"},
		"plaintext, Advertise is a name":       {conclave.Config{Advertise: "db.example:7000"}, "set TLS, or Insecure"},
		"plaintext, Join is a network address": {conclave.Config{Join: []string{"192.0.2.1:7000"}, Expect: 2}, "set TLS, or Insecure"},
		"plaintext, Listener on a wildcard":    {conclave.Config{Listener: beyond, Advertise: "127.0.0.1:7000"}, "set TLS, or Insecure"},
		"TLS without authorities":              {conclave.Config{TLS: &tls.Config{Certificates: make([]tls.Certificate, 1)}}, "set RootCAs"},
	} {
		t.Run(name, func(t *testing.T) { grouptest.WantOpenError(t, row.config, conclave.ErrInvalid, row.part) })
	}
}

func TestConfig_PortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := conclave.Config{Bind: l.Addr().String(), Dir: filepath.Join(t.TempDir(), "data")}
	grouptest.WantOpenError(t, c, syscall.EADDRINUSE, "choose another Bind, or stop the process that uses it")
	if _, err := os.Stat(c.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was touched: %v", err)
	}
}

func TestConfig_MeasuredJobsBounded(t *testing.T) {
	c := conclave.Config{MeasuredJobs: make([]string, 65)}
	const bound = "MeasuredJobs: want at most 64 with those of MeasuredGroupJobs, got 65"
	grouptest.WantOpenError(t, c, conclave.ErrInvalid, bound)
	c = conclave.Config{MeasuredJobs: make([]string, 33), MeasuredGroupJobs: map[string][]string{"a": make([]string, 16), "b": make([]string, 16)}}
	grouptest.WantOpenError(t, c, conclave.ErrInvalid, bound)
}

func TestConfig_MeasuredGroupJobs(t *testing.T) {
	c := conclave.Config{MeasuredGroupJobs: map[string][]string{"": nil, "tenant": {"", "two", "two"}, "conclave": {"report"}}}
	grouptest.WantOpenError(t, c, conclave.ErrInvalid, "MeasuredGroupJobs: invalid name: ", `MeasuredGroupJobs: "two" is there twice`,
		`MeasuredGroupJobs: "conclave" is the default group: name its jobs in MeasuredJobs`)
}

// The own session of a process has its name, so one that no session can have is refused before there is a node that cannot lock.
func TestConfig_NameWithNUL(t *testing.T) {
	const part = "invalid Name: want at most 128 bytes of UTF-8 without NUL"
	grouptest.WantOpenError(t, conclave.Config{Name: "a\x00b"}, conclave.ErrInvalid, part)
	_, err := conclave.Dial(grouptest.Expired(), &conclave.ClientConfig{Name: "a\x00b", Addresses: []string{"127.0.0.1:1"}})
	if !errors.Is(err, conclave.ErrInvalid) || !strings.Contains(err.Error(), part) {
		t.Errorf("Dial: %v", err)
	}
}
