package conclave_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// leastDurations has the least value of each duration that a program can set, by package, type and
// field, or by function and parameter. Zero and the constants No* may mean something else.
func leastDurations() map[string]time.Duration {
	return map[string]time.Duration{
		"conclave.Config.SessionTTL":        time.Second,
		"conclave.Config.HeartbeatInterval": time.Millisecond,
		"conclave.Config.ElectionTimeout":   3 * time.Millisecond, // with the least heartbeat interval
		"conclave.ClientConfig.SessionTTL":  time.Second,
		"conclave.SessionConfig.TTL":        time.Second,
		"conclave.SessionConfig.LockDelay":  time.Millisecond,
		"conclave.GroupConfig.ReplaceAfter": 5 * time.Second,
		"conclave.GroupConfig.RemoveAfter":  5 * time.Second,
		"conclave.Linger.d":                 time.Millisecond,
		"conclave.MaxHold.d":                time.Millisecond,
		"conclave.WithMaxHold.d":            time.Millisecond,
		"conclave.Extend.d":                 time.Millisecond,
		"conclave.Keep.d":                   time.Millisecond,
		"conclave.Settle.d":                 time.Millisecond,
		"conclave.Grace.d":                  time.Millisecond,
		"conclave.Every.every":              time.Millisecond,
		"conclave.RegisterCheck.ttl":        time.Second,
		"conclave.RegisterClientCheck.ttl":  time.Second,
		"consulapi.Options.Timeout":         time.Millisecond, // consulapi has its test
		"consulapi.Options.SessionTTLMin":   time.Second,
		"conclavegocron.HoldFor.d":          time.Millisecond, // as has conclavegocron
		"conclavegocron.Timeout.d":          time.Millisecond,
		"conclavegocron.Once.every":         time.Second,
	}
}

// reported are the types whose durations a program only reads.
func reported() []string {
	return []string{
		"conclave.CheckInfo", "conclave.Explanation", "conclave.LockOwner", "conclave.LockInfo", "conclave.ShareInfo", "conclave.TakenName", "conclave.SemaphoreInfo", "conclave.PermitInfo", "conclave.JobRun", "conclave.ShardWorkerInfo", "conclave.ShardExplanation", "conclave.JobMetrics",
		"conclave.SessionInfo", "conclave.Member", "conclave.GroupInfo", "conclave.Metrics", "conclave.Health",
		"conclavecertmagic.RenewLockLease", // an interface of certmagic, which ignores it: leases renew themselves
	}
}

// settable returns the durations of the packages that users import: fields of exported types and
// parameters of exported functions.
func settable(t *testing.T) (names []string) {
	t.Helper()
	add := func(of string, fields *ast.FieldList) {
		for _, f := range fields.List {
			if s, ok := f.Type.(*ast.SelectorExpr); !ok || s.Sel.Name != "Duration" {
				continue
			}
			for _, name := range f.Names {
				names = append(names, of+"."+name.Name)
			}
		}
	}
	eachFile(t, func(_ string, file *ast.File) {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() {
					add(file.Name.Name+"."+d.Name.Name, d.Type.Params)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if of, ok := spec.(*ast.TypeSpec); ok && of.Name.IsExported() {
						if fields, ok := of.Type.(*ast.StructType); ok {
							add(file.Name.Name+"."+of.Name.Name, exportedOf(fields.Fields))
						}
					}
				}
			}
		}
	})
	return names
}

func exportedOf(fields *ast.FieldList) *ast.FieldList {
	kept := new(ast.FieldList)
	for _, f := range fields.List {
		if len(f.Names) > 0 && f.Names[0].IsExported() {
			kept.List = append(kept.List, f)
		}
	}
	return kept
}

// eachFile calls f with each file of the packages that users import.
func eachFile(t *testing.T, f func(path string, file *ast.File)) {
	t.Helper()
	for _, dir := range []string{".", "conclavehttp", "conclaveprom", "conclavetest", "fencing", "contrib"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && dir == "." && path != ".":
				return fs.SkipDir
			case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err == nil {
				f(path, file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestDurations_EachHasALeastValue(t *testing.T) {
	least, found := leastDurations(), map[string]bool{}
	for _, name := range settable(t) {
		isReported := false
		for _, of := range reported() {
			isReported = isReported || strings.HasPrefix(name, of+".")
		}
		if _, ok := least[name]; !ok && !isReported {
			t.Errorf("%s: a duration without a least value: give it one, and a line in the table of this test", name)
		}
		found[name] = true
	}
	for name := range found {
		delete(least, name)
	}
	for name := range least {
		t.Errorf("%s is in the table, and there is no such duration", name)
	}
}

// A number without a unit is a number of nanoseconds. What is below the least value is refused, with the
// unit, and the least value is accepted.
func TestDurations_TooShortRefused(t *testing.T) {
	n := grouptest.Alone(t)
	ctx := grouptest.Bounded(t)
	open := func(edit func(*conclave.Config)) error {
		cfg := conclave.Config{HeartbeatInterval: 10 * time.Millisecond}
		edit(&cfg)
		other, err := conclave.Open(ctx, &cfg)
		if err == nil {
			grouptest.Kill(other)
		}
		return err
	}
	session := func(cfg conclave.SessionConfig) error {
		s, err := n.NewSession(ctx, &cfg)
		if err == nil {
			err = s.Close(ctx)
		}
		return err
	}
	tried := map[string]func(d time.Duration) error{
		"conclave.Config.SessionTTL": func(d time.Duration) error { return open(func(c *conclave.Config) { c.SessionTTL = d }) },
		"conclave.Config.HeartbeatInterval": func(d time.Duration) error {
			return open(func(c *conclave.Config) { c.HeartbeatInterval = d })
		},
		"conclave.Config.ElectionTimeout": func(d time.Duration) error {
			return open(func(c *conclave.Config) { c.HeartbeatInterval, c.ElectionTimeout = time.Millisecond, d })
		},
		"conclave.ClientConfig.SessionTTL": func(d time.Duration) error {
			c, err := conclave.Dial(ctx, &conclave.ClientConfig{Addresses: []string{n.Addr()}, SessionTTL: d})
			if err == nil {
				err = c.Close(ctx)
			}
			return err
		},
		"conclave.SessionConfig.TTL":       func(d time.Duration) error { return session(conclave.SessionConfig{TTL: d}) },
		"conclave.SessionConfig.LockDelay": func(d time.Duration) error { return session(conclave.SessionConfig{LockDelay: d}) },
		"conclave.GroupConfig.ReplaceAfter": func(d time.Duration) error {
			return n.SetGroupConfig(ctx, conclave.GroupConfig{Voters: 1, ReplaceAfter: d})
		},
		"conclave.GroupConfig.RemoveAfter": func(d time.Duration) error {
			return n.SetGroupConfig(ctx, conclave.GroupConfig{Voters: 1, RemoveAfter: d})
		},
		"conclave.Linger.d": func(d time.Duration) error {
			return n.FencedLock("x", conclave.Linger(d)).Do(ctx, func(context.Context, conclave.Fence) error { return nil })
		},
		"conclave.RegisterCheck.ttl":       func(d time.Duration) error { _, err := n.RegisterCheck(ctx, "x", d); return err },
		"conclave.RegisterClientCheck.ttl": func(d time.Duration) error { _, err := n.RegisterClientCheck(ctx, "y", d); return err },
	}
	maps.Copy(tried, holds(ctx, n))
	refusesLess(t, tried)
}

// holds tries the durations of holds that end in time.
func holds(ctx context.Context, n *conclave.Node) map[string]func(d time.Duration) error {
	return map[string]func(d time.Duration) error{
		"conclave.MaxHold.d": func(d time.Duration) error {
			err := n.FencedLock("z", conclave.MaxHold(d)).Do(ctx, func(context.Context, conclave.Fence) error { return nil })
			if errors.Is(err, conclave.ErrHoldExpired) { // so it was taken, and has passed
				err = nil
			}
			return err
		},
		"conclave.WithMaxHold.d": func(d time.Duration) error {
			_, err := n.Semaphore("x", 1).WithMaxHold(d).TryAcquire(ctx, 2) // which is one too many
			if errors.Is(err, conclave.ErrTooLarge) {
				err = nil
			}
			return err
		},
		"conclave.Extend.d": func(d time.Duration) error {
			err := n.FencedLock("x", conclave.MaxHold(time.Hour)).Extend(ctx, d)
			if errors.Is(err, conclave.ErrNotHeld) {
				err = nil
			}
			return err
		},
		"conclave.Keep.d": func(d time.Duration) error {
			_, err := n.Job("x", conclave.Keep(d)).Info(ctx)
			return err
		},
		"conclave.Settle.d": func(d time.Duration) error {
			_, err := n.Shards("x", 1, conclave.Settle(d)).Info(ctx)
			return err
		},
		"conclave.Grace.d": func(d time.Duration) error {
			_, err := n.Shards("x", 1, conclave.Grace(d)).Info(ctx)
			return err
		},
		"conclave.Every.every": func(d time.Duration) error {
			err := n.Job("x").Every(grouptest.Expired(), d, nil)
			if errors.Is(err, grouptest.Expired().Err()) {
				err = nil
			}
			return err
		},
	}
}

// refusesLess tries each duration of this package.
func refusesLess(t *testing.T, tried map[string]func(time.Duration) error) {
	t.Helper()
	for name, least := range leastDurations() {
		try := tried[name]
		if !strings.HasPrefix(name, "conclave.") {
			continue
		}
		if try == nil {
			t.Errorf("%s is not tried", name)
			continue
		}
		for _, d := range []time.Duration{1, 15, 500, 999_999, least - 1, -2, -time.Second} {
			if err := try(d); !errors.Is(err, conclave.ErrInvalid) || !strings.Contains(err.Error(), "got "+d.String()) {
				t.Errorf("%s of %v: %v", name, d, err)
			}
		}
		if err := try(least); err != nil {
			t.Errorf("%s of %v: %v", name, least, err)
		}
	}
}
