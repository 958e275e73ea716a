package machine

import (
	"fmt"
	"strings"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// printSet prints what a reply to a LockSet has besides. Names that are not available are printed by their positions.
func printSet(r *wire.SetReply) string {
	if r == nil {
		return ""
	}
	s := ""
	if len(r.Fences) > 0 {
		s += " fences=" + strings.ReplaceAll(strings.Trim(fmt.Sprint(r.Fences), "[]"), " ", ",")
	}
	if r.Shared != 0 {
		s += fmt.Sprintf(" %d shared", r.Shared)
	}
	for i, t := range r.Taken {
		s += strings.Repeat(";", min(i, 1)) + fmt.Sprintf(" name %d is taken", t.Name)
		if t.Holder != nil {
			s += printHolder(t.Holder)
		}
		if t.Delay != 0 {
			s += fmt.Sprintf(" delay=%v", time.Duration(t.Delay))
		}
	}
	return s
}

// printNames prints how many names the set has that something is of.
func printNames(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" set=%d", n)
}
