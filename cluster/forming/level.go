package forming

import (
	"fmt"

	"github.com/conclave-go/conclave/internal/wire"
)

// lowestLevel is that of a group and of a founder that states none.
const lowestLevel = 1

// founderLevel returns the highest feature level at which a founder can form a group. One of a
// build that states none begins with an empty state, whatever the proposal says.
func (f *Former) founderLevel(id uint64) uint32 {
	if id == f.cfg.Identity.Member {
		return f.cfg.Level
	}
	return max(f.candidates.process(id).GetFeatureLevel(), lowestLevel)
}

// commonLevel returns the feature level at which founders form a group; 0 for the lowest, so that
// the proposal is that of a build which knows no other.
func (f *Former) commonLevel(founders []*wire.Founder) uint32 {
	level := f.cfg.Level
	for _, founder := range founders {
		level = min(level, f.founderLevel(founder.GetMember()))
	}
	if level == lowestLevel {
		return 0
	}
	return level
}

// levelObjection returns why this member refuses the feature level of a proposal; "": it does
// not. A founder may have started again with another build.
func (f *Former) levelObjection(p *wire.Proposal) string {
	for _, founder := range p.GetFounders() {
		if supported := f.founderLevel(founder.GetMember()); p.GetFeatureLevel() > supported {
			return fmt.Sprintf("the group would begin at feature level %d, and founder %s (%v at %s) supports %d",
				p.GetFeatureLevel(), founder.GetName(), wire.MemberID(founder.GetMember()), founder.GetAdvertise(), supported)
		}
	}
	return ""
}
