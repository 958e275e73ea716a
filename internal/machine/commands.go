package machine

import (
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// Commands encodes the commands that the cluster itself submits.
type Commands struct{}

// RemoveMember removes a member from the group, 0: the one that submits it. voters are the
// voters that the submitter knows of.
func (Commands) RemoveMember(member uint64, voters []uint64) []byte {
	return encodeCommand(&wire.Command{Op: &wire.Command_RemoveMember{RemoveMember: &wire.RemoveMember{Member: member, Voters: voters}}})
}

// AdmitMember admits a member to the group.
func (Commands) AdmitMember(c *wire.AdmitMember) []byte {
	return encodeCommand(&wire.Command{Op: &wire.Command_AdmitMember{AdmitMember: c}})
}

// CreateGroup creates a further group, with a configuration of the default one.
func (Commands) CreateGroup(name string, voters, standbys []uint64) []byte {
	return encodeCommand(&wire.Command{Op: &wire.Command_CreateGroup{CreateGroup: &wire.CreateGroup{Name: name, Voters: voters, Standbys: standbys}}})
}

// DropGroup removes a further group that is sealed, and has granted so many fences.
func (Commands) DropGroup(number uint32, fences uint64) []byte {
	return encodeCommand(&wire.Command{Op: &wire.Command_DropGroup{DropGroup: &wire.DropGroup{Number: number, Fences: fences}}})
}

// FollowMembers has a further group follow the members of the default one.
func (Commands) FollowMembers(c *wire.FollowMembers) []byte {
	return encodeCommand(&wire.Command{Op: &wire.Command_FollowMembers{FollowMembers: c}})
}

// SealGroup ends a further group.
func (Commands) SealGroup(force bool) []byte {
	return encodeCommand(&wire.Command{Op: &wire.Command_SealGroup{SealGroup: &wire.SealGroup{Force: force}}})
}

// ReportLiveness reports a judgment of the leader's failure detector.
func (Commands) ReportLiveness(r fact.LivenessReport) []byte {
	return encodeCommand(&wire.Command{Op: &wire.Command_ReportGossip{ReportGossip: &wire.ReportGossip{
		Member: r.Member, Boot: r.Boot, Alive: r.Alive, Term: r.Term,
	}}})
}

// ReportProcess reports that a majority of the voters takes a process for crashed, or does no
// longer.
func (Commands) ReportProcess(r fact.CrashReport) []byte {
	return encodeCommand(&wire.Command{Op: &wire.Command_ReportProcess{ReportProcess: &wire.ReportProcess{
		Member: r.Member, Boot: r.Boot, Crashed: r.Crashed, Term: r.Term,
	}}})
}

// RaiseLevel raises the group's feature level. members are those of Raft's configuration.
func (Commands) RaiseLevel(level uint32, members []uint64, force bool) []byte {
	return encodeCommand(&wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{
		Level: level, Members: members, Force: force,
	}}})
}

// RenewClients renews clients.
func (Commands) RenewClients(clients []wire.ID) []byte {
	c := new(wire.RenewClients)
	for _, id := range clients {
		c.Incarnations = append(c.Incarnations, id[:])
	}
	return encodeCommand(&wire.Command{Op: &wire.Command_RenewClients{RenewClients: c}})
}

func encodeCommand(c *wire.Command) []byte {
	b, err := proto.Marshal(c)
	if err != nil {
		return nil // only a string that is not UTF-8 fails, and these commands have none
	}
	return b
}
