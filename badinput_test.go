package conclave

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-go/conclave/storage"
)

// Bad settings, a bad port, a bad directory: a clear error that says what to do,
// and nothing is changed.

// refused checks that Open fails with an error that is want, if any, and that
// says each of the things.
func refused(t *testing.T, c Config, want error, says ...string) {
	t.Helper()
	n, err := Open(within(t, 20*time.Second), &c)
	if err == nil {
		n.Close(expired)
		t.Fatal("opened")
	}
	var e *Error
	if !errors.As(err, &e) || want != nil && !errors.Is(err, want) {
		t.Errorf("%v; want an *Error that wraps %v", err, want)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

// All faults are told at once, and nothing is touched before they are mended.
func TestSettingsThatMakeNoSense(t *testing.T) {
	c := Config{
		Name: longName(129), Group: "\xff", Bind: "0.0.0.0", Join: []string{"nowhere", "127.0.0.1:0", "0.0.0.0:1"},
		Expect: 1, Voters: 4, SessionTTL: time.Millisecond, HeartbeatInterval: time.Minute, ElectionTimeout: time.Second,
		Limits: Limits{Calls: -1}, Dir: filepath.Join(t.TempDir(), "data"),
	}
	refused(t, c, ErrInvalid, "Name has to be", "Group has to be", `Bind "0.0.0.0" has to be host:port`, `Join "nowhere" has to be host:port`,
		`Join "127.0.0.1:0" has no usable port`, `Join "0.0.0.0:1" is a wildcard`, "Join has to be empty", "1, 3, 5 or 7",
		"SessionTTL is 1ms", "HeartbeatInterval is 1m0s", "at least 3 heartbeats", "Limits.Calls is -1")
	if _, err := os.Stat(c.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was touched: %v", err)
	}
}

func TestAddressesThatMakeNoSense(t *testing.T) {
	beyond, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		config Config
		says   string
	}{
		"a wildcard that nobody can dial": {Config{Bind: "0.0.0.0:0", Insecure: true}, "set Advertise to the address that others dial"},
		"a wildcard of IPv6":              {Config{Bind: "[::]:0", Insecure: true}, "set Advertise"},
		"a wildcard without a host":       {Config{Bind: ":7000", Insecure: true}, "set Advertise"},
		"a wildcard as what others dial":  {Config{Bind: "0.0.0.0:0", Advertise: "0.0.0.0:7000", Insecure: true}, "others cannot dial it"},
		"plaintext to anybody":            {Config{Bind: "0.0.0.0:0", Advertise: "127.0.0.1:7000"}, "set TLS, or Insecure if the network itself is trusted"},
		"plaintext on the network":        {Config{Bind: "192.0.2.1:7000"}, "set TLS, or Insecure"},
		"plaintext by a name":             {Config{Advertise: "db.example:7000"}, "set TLS, or Insecure"},
		"plaintext to a peer":             {Config{Join: []string{"192.0.2.1:7000"}, Expect: 2}, "set TLS, or Insecure"},
		"plaintext by a listener":         {Config{Listener: beyond, Advertise: "127.0.0.1:7000"}, "set TLS, or Insecure"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, row.config, ErrInvalid, row.says) })
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := Config{Bind: l.Addr().String(), Dir: filepath.Join(t.TempDir(), "data")}
	refused(t, c, syscall.EADDRINUSE, "choose another Bind, or stop what uses it")
	if _, err := os.Stat(c.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was touched: %v", err)
	}
}

// A directory that a member has open stays that member's, which notices nothing.
func TestDirectoryInUse(t *testing.T) {
	t.Run("by this process", func(t *testing.T) {
		c := quick(t)
		n, err := Open(within(t, 20*time.Second), &c)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close(expired)
		l := n.FencedLock("x")
		f := mustLock(t, l)
		refused(t, Config{Dir: c.Dir}, storage.ErrInUse, c.Dir, "one member in one process")
		if now, err := l.Fence(); now != f || err != nil {
			t.Error(now, err)
		}
		mustUnlock(t, l)
	})
	t.Run("by another process", func(t *testing.T) {
		g := processesOf(t, 1, 2*time.Second)
		p := g.members[0]
		f := p.must("lock", "x")
		refused(t, Config{Dir: g.configs[0].Dir}, storage.ErrInUse, g.configs[0].Dir, "one member in one process")
		if now := p.must("fence", "x"); now != f {
			t.Errorf("fence %v has become %v", f, now)
		}
		p.must("unlock", "x")
		p.kill()
		n, err := Open(within(t, 20*time.Second), &Config{Dir: g.configs[0].Dir}) // the lock goes with the process
		if err != nil {
			t.Fatal(err)
		}
		n.Close(expired)
	})
}

// formed makes the directory that of a member that has locked something, twice
// opened and closed, and returns the last fence.
func formed(t *testing.T, c Config) (last Fence) {
	t.Helper()
	for range 2 {
		n, err := Open(within(t, 20*time.Second), &c)
		if err != nil {
			t.Fatal(err)
		}
		l := n.FencedLock("x")
		for range 50 {
			last = mustLock(t, l)
			mustUnlock(t, l)
		}
		n.Close(expired)
	}
	return last
}

// What is refused before it is touched is as good as before.
func TestDirectoryOfAnother(t *testing.T) {
	t.Run("group", func(t *testing.T) {
		c := quick(t)
		last := formed(t, c)
		other := c
		other.Group = "other"
		refused(t, other, nil, `directory belongs to group "conclave" (want "other")`, "set Config.Group or use another Dir")
		if next := formed(t, c); next <= last {
			t.Errorf("fence %v after %v", next, last)
		}
	})
	t.Run("program", func(t *testing.T) {
		dir := foreignDirectory(t)
		refused(t, Config{Dir: dir}, storage.ErrForeign, "holiday.jpg", "choose an empty directory")
		if list, err := os.ReadDir(dir); len(list) != 1 || err != nil {
			t.Errorf("the directory was touched: %v %v", list, err)
		}
	})
	t.Run("kind", func(t *testing.T) {
		file := filepath.Join(foreignDirectory(t), "holiday.jpg")
		refused(t, Config{Dir: file}, nil, "has to be a directory")
		if text, err := os.ReadFile(file); string(text) != "a beach" {
			t.Errorf("the file was touched: %q %v", text, err)
		}
	})
	t.Run("version", func(t *testing.T) {
		c := quick(t)
		formed(t, c)
		if err := os.WriteFile(filepath.Join(c.Dir, "CONCLAVE"), []byte("conclave data directory, format 999\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, c, storage.ErrNewer, "run the version that wrote it")
	})
}

// foreignDirectory holds what is not ours.
func foreignDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "holiday.jpg"), []byte("a beach"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func longName(n int) string { return strings.Repeat("x", n) }

// Damage at any of the files that count is noticed, and is still noticed when
// one tries again.
func TestDamagedDirectory(t *testing.T) {
	for name, damage := range map[string]struct {
		files string // what has to be there, by pattern
		how   func(data []byte) []byte
	}{
		"write-ahead log, a byte":    {"*.log", flipped},
		"write-ahead log, its end":   {"*.log", func(data []byte) []byte { return data[:len(data)/2] }},
		"write-ahead log, all of it": {"*.log", func([]byte) []byte { return nil }},
		"table, a byte":              {"*.sst", flipped},
		"table, its end":             {"*.sst", func(data []byte) []byte { return data[:len(data)/2] }},
		"manifest, a byte":           {"MANIFEST-*", flipped},
		"manifest, all of it":        {"MANIFEST-*", func([]byte) []byte { return nil }},
		"watermark, all of it":       {"WATERMARK", func(data []byte) []byte { return make([]byte, len(data)) }},
		"marker, its text":           {"CONCLAVE", func([]byte) []byte { return []byte("shopping list\n") }},
	} {
		t.Run(name, func(t *testing.T) {
			c := quick(t)
			formed(t, c)
			spoil(t, filepath.Join(c.Dir, damage.files), damage.how)
			refused(t, c, ErrCorrupt, c.Dir)
			refused(t, c, ErrCorrupt, c.Dir)
		})
	}
}

// spoil changes every file that matches.
func spoil(t *testing.T, pattern string, how func(data []byte) []byte) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, how(data), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// flipped is what a bad sector makes of data.
func flipped(data []byte) []byte {
	data[len(data)/3] ^= 0x40
	return data
}
