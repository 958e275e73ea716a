package conclavehttp

import "time"

// soon is how long before its end a certificate is a warning.
const soon = 30 * 24 * time.Hour

// validity is until when a certificate is valid.
type validity struct {
	Name  string // "certificate" or "authorities"
	Until time.Time
	Left  time.Duration // negative: it has expired
	Class string        // how serious it is
}

// validities returns until when the certificates of a node are valid.
func validities(certificates func() (certificate, authorities time.Time), now time.Time) (all []validity) {
	if certificates == nil {
		return nil
	}
	certificate, authorities := certificates()
	for i, until := range []time.Time{certificate, authorities} {
		if until.IsZero() {
			continue
		}
		v := validity{Name: []string{"certificate", "authorities"}[i], Until: until, Left: until.Sub(now), Class: "good"}
		switch {
		case v.Left <= 0:
			v.Class = "bad"
		case v.Left < soon:
			v.Class = "warn"
		}
		all = append(all, v)
	}
	return all
}

// expiring returns those that have expired or soon do.
func expiring(all []validity) (some []validity) {
	for _, v := range all {
		if v.Class != "good" {
			some = append(some, v)
		}
	}
	return some
}

// Remedy returns what to do.
func (v validity) Remedy() string {
	what := map[string]string{"certificate": "This node's certificate", "authorities": "One of the authorities that this node trusts"}[v.Name]
	if v.Left <= 0 {
		return what + " has expired: members and clients that verify it refuse new connections. Renew it."
	}
	return what + " expires in " + ago(v.Left) + ": renew it."
}

// Day is the date of the end, with the time of day when that counts.
func (v validity) Day() string {
	if v.Left.Abs() < 48*time.Hour {
		return v.Until.Local().Format("2006-01-02 15:04")
	}
	return v.Until.Local().Format("2006-01-02")
}
