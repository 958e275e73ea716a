package consulapi

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/conclave-go/conclave"
)

const (
	minTTL       = 10 * time.Second // Consul's
	maxTTL       = 24 * time.Hour
	minLockDelay = time.Millisecond
	maxLockDelay = time.Minute
)

// parseSession reads the body of a request for a session; none is one with all defaults.
func parseSession(body []byte, own string) (*conclave.SessionConfig, error) {
	if len(body) == 0 {
		body = []byte("{}")
	}
	f, err := parseFields(body, "name", "node", "ttl", "lockdelay", "behavior", "checks", "nodechecks")
	if err != nil {
		return nil, err
	}
	var node, ttl, behavior string
	cfg := new(conclave.SessionConfig)
	if err := f.texts(map[string]*string{"Name": &cfg.Name, "Node": &node, "TTL": &ttl, "Behavior": &behavior}); err != nil {
		return nil, err
	}
	if node != "" && node != own {
		return nil, invalid("Node %q: want that of this agent, %q: a session is created at the agent of its node", shorten(node), own)
	}
	switch behavior {
	case "", "release":
	case "delete":
		cfg.Behavior = conclave.DeleteKeys
	default:
		return nil, invalid("Invalid Behavior setting '%s'", shorten(behavior))
	}
	if cfg.TTL, err = parseTTL(ttl); err != nil {
		return nil, err
	}
	if cfg.LockDelay, err = parseLockDelay(f["lockdelay"]); err != nil {
		return nil, err
	}
	cfg.Checks, cfg.NoChecks, err = parseChecks(f)
	return cfg, err
}

// parseTTL reads a session's TTL: none, or 10 s to 24 h.
func parseTTL(text string) (time.Duration, error) {
	if text == "" {
		return conclave.NoTTL, nil
	}
	ttl, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, invalid("Session TTL '%s' invalid: %v", shorten(text), err)
	case ttl == 0:
		return conclave.NoTTL, nil
	case ttl < minTTL || ttl > maxTTL:
		return 0, invalid("Invalid Session TTL '%d', must be between [%v=%v]", ttl, minTTL, maxTTL)
	}
	return ttl, nil
}

// parseLockDelay reads a lock-delay: a duration, or a number of nanoseconds; what is below
// 1000 of them is meant in seconds.
func parseLockDelay(raw json.RawMessage) (time.Duration, error) {
	if raw == nil || string(raw) == "null" {
		return 0, nil // the default, 15 s, as in Consul
	}
	var text string
	var n float64
	var delay time.Duration
	if err := json.Unmarshal(raw, &text); err == nil {
		if delay, err = time.ParseDuration(text); err != nil {
			return 0, invalid("Request decode failed: LockDelay: %v", err)
		}
	} else if err := json.Unmarshal(raw, &n); err != nil || n > float64(maxTTL) {
		return 0, invalid("Request decode failed: LockDelay: want a duration or a number")
	} else {
		delay = time.Duration(n)
	}
	if delay >= 0 && delay < 1000 {
		delay *= time.Second
	}
	switch {
	case delay < 0:
		return 0, invalid("LockDelay: want 0 or more, got %v", delay)
	case delay == 0:
		return conclave.NoLockDelay, nil
	case delay < minLockDelay:
		return 0, invalid("LockDelay: want 0 or at least %v, got %v", minLockDelay, delay)
	}
	return min(delay, maxLockDelay), nil
}

// parseChecks reads the checks: serfHealth if there are no lists of them, and what is in
// the lists otherwise, which may be none.
func parseChecks(f fields) (checks []string, none bool, err error) {
	listed := false
	for _, name := range []string{"checks", "nodechecks"} {
		var ids []string
		if err := f.into(name, &ids); err != nil {
			return nil, false, err
		}
		if _, ok := f[name]; ok {
			listed = true
		}
		for _, id := range ids {
			switch id {
			case serfHealth:
				id = gossip
			case gossip:
				return nil, false, invalid("check %q is called %q here", gossip, serfHealth)
			}
			if !slices.Contains(checks, id) {
				checks = append(checks, id)
			}
		}
	}
	return checks, listed && len(checks) == 0, nil
}
