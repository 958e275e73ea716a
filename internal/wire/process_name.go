package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// ProcessName returns the name of a member's process in gossip. A restarted member is a
// process of another name.
func ProcessName(member, boot uint64) string { return fmt.Sprintf("%v.%d", MemberID(member), boot) }

// MemberOf returns the member whose process has that name; ok is false if it is no name
// that ProcessName returns.
func MemberOf(process string) (member uint64, ok bool) {
	id, number, _ := strings.Cut(process, ".")
	member, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		return 0, false
	}
	boot, err := strconv.ParseUint(number, 10, 64)
	return member, err == nil && process == ProcessName(member, boot)
}

// FounderOf returns the process that describes itself so, as a founder or member.
func FounderOf(meta *GossipMeta) *Founder {
	return &Founder{Member: meta.GetMember(), Name: meta.GetName(), Advertise: meta.GetAdvertise(), Key: meta.GetKey()}
}
