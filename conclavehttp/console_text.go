package conclavehttp

import (
	"fmt"
	"strings"
	"time"

	"github.com/conclave-go/conclave"
)

// number groups the digits of a number by three.
func number(n any) string {
	digits := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "−", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return sign + digits
}

// count is a number of things.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return number(n) + " " + thing
}

// ago is how long something has lasted, for people; "?" if that is not known.
func ago(d time.Duration) string {
	if d < 0 {
		return "?"
	}
	return shortDuration(d)
}

// shortDuration has one unit, or two for what is long.
func shortDuration(d time.Duration) string {
	switch {
	case d == conclave.NoTTL:
		return "none"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// fullDuration is a setting, where 0 means never.
func fullDuration(d time.Duration) string {
	if d == 0 {
		return "never"
	}
	return d.String()
}
