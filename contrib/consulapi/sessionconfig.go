package consulapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/conclave-go/conclave"
)

const (
	defaultMinTTL = 10 * time.Second // Consul's session_ttl_min
	leastMinTTL   = time.Second
	maxTTL        = 24 * time.Hour
	minLockDelay  = time.Millisecond
	maxLockDelay  = time.Minute
)

// parseSession reads the body of a request for a session; none is one with all defaults.
func parseSession(body []byte, own string, minTTL time.Duration) (*conclave.SessionConfig, error) {
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
		return nil, refuse(http.StatusInternalServerError, "Invalid Behavior setting '%s'", shorten(behavior))
	}
	asked, err := parseTTL(ttl, minTTL)
	if err != nil {
		return nil, err
	}
	cfg.TTL = lease(asked)
	if cfg.LockDelay, err = parseLockDelay(f["lockdelay"]); err != nil {
		return nil, err
	}
	cfg.Checks, cfg.NoChecks, err = parseChecks(f)
	return cfg, err
}

// parseTTL reads a session's TTL: none, or from the least one to 24 h. Consul's servers, and not its agents, refuse
// others, so the status is 500; clients compare it and the text, as Patroni does to find a TTL that is accepted.
func parseTTL(text string, least time.Duration) (time.Duration, error) {
	if text == "" {
		return conclave.NoTTL, nil
	}
	ttl, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, refuse(http.StatusInternalServerError, "Session TTL '%s' invalid: %v", shorten(text), err)
	case ttl == 0:
		return conclave.NoTTL, nil
	case ttl < least || ttl > maxTTL:
		return 0, refuse(http.StatusInternalServerError, "Invalid Session TTL '%d', must be between [%v=%v]", ttl, least, maxTTL)
	}
	return ttl, nil
}

// As Consul's servers do, the group holds a session for twice the TTL that its client has written: clients renew by
// the latter and take the difference for granted. Patroni writes half of what it wants.
func lease(ttl time.Duration) time.Duration {
	if ttl == conclave.NoTTL {
		return ttl
	}
	return min(2*ttl, maxTTL)
}

// written is the TTL of which lease has made this one, in seconds where it is whole ones, as nearly all clients write it.
func written(lease time.Duration) string {
	switch ttl := lease / 2; {
	case lease == conclave.NoTTL:
		return ""
	case ttl%time.Second == 0:
		return fmt.Sprintf("%ds", ttl/time.Second)
	default:
		return ttl.String()
	}
}

// parseLockDelay reads a lock-delay: a duration, or a number of nanoseconds; what is below
// 1000 of them is meant in seconds.
func parseLockDelay(raw json.RawMessage) (time.Duration, error) {
	if raw == nil || string(raw) == "null" {
		return 0, nil // the default, 15 s, as in Consul
	}
	delay, err := parseDuration(raw)
	if err != nil {
		return 0, invalid("Request decode failed: LockDelay: %v", err)
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

// parseDuration reads a duration: a text with a unit, or a number of nanoseconds.
func parseDuration(raw json.RawMessage) (time.Duration, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return time.ParseDuration(text)
	}
	var n float64
	if err := json.Unmarshal(raw, &n); err != nil || math.Abs(n) > float64(maxTTL) {
		return 0, errors.New("want a duration, or a number of nanoseconds of at most 24 h")
	}
	return time.Duration(n), nil
}

// parseChecks reads the checks: those of NodeChecks, by default serfHealth, and those of Checks, which is older. As in
// Consul since version 1.7 an empty list or null in either, as older clients send it, is a session without checks.
func parseChecks(f fields) (checks []string, none bool, err error) {
	lists := make(map[string][]string)
	for _, name := range []string{"nodechecks", "checks"} {
		ids := []string{serfHealth}
		if _, ok := f[name]; ok {
			ids = nil
			if err := f.into(name, &ids); err != nil {
				return nil, false, err
			}
		}
		lists[name] = ids
	}
	if len(lists["checks"]) == 0 || len(lists["nodechecks"]) == 0 {
		return nil, true, nil
	}
	all := lists["nodechecks"]
	if !slices.Equal(lists["checks"], []string{serfHealth}) {
		all = slices.Concat(all, lists["checks"])
	}
	for _, id := range all {
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
	return checks, false, nil
}
