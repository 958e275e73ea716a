package machine

import (
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// execute executes a command and returns its outcome; malformed is the decoder's error.
func (m *Machine) execute(t wire.Ticket, from submitter, floor uint64, c *wire.Command, malformed error) *wire.Reply {
	bad := malformed != nil
	m.forClient = from.client
	inc := m.incarnation(t.Incarnation)
	if !bad {
		switch op := c.Op.(type) {
		case *wire.Command_Register:
			if !from.client {
				return m.register(t.Incarnation, from.member, floor, op.Register)
			}
		case *wire.Command_RegisterClient:
			if (grouping{m}).isSealed() {
				return m.refuse(wire.Code_GROUP_DELETED, "the group is being deleted")
			}
			return m.registerClient(t.Incarnation, from, floor, op.RegisterClient)
		}
	}
	if inc == nil {
		return m.refuse(wire.Code_UNKNOWN_INCARNATION, "the incarnation is not registered; register a new one")
	}
	if bad {
		return m.refuse(wire.Code_INVALID, "the command cannot be decoded")
	}
	if from.client {
		if r := m.mayClient(c); r != nil {
			return r
		}
	}
	if x := (grouping{m}); x.isFurther() {
		if r := x.refuses(c); r != nil {
			return r
		}
	}
	return m.dispatch(inc, t.Seq, c)
}

// dispatch is the table of the commands of a registered process.
func (m *Machine) dispatch(inc *incarnation, seq uint64, c *wire.Command) *wire.Reply {
	switch op := c.Op.(type) {
	case *wire.Command_Renew:
		m.renewed(inc)
		return bounding{m}.renewal()
	case *wire.Command_Deregister:
		m.drop(inc, fact.Closed)
		return m.reply(wire.Code_OK)
	case *wire.Command_OpenSession:
		return m.openSession(inc, op.OpenSession)
	case *wire.Command_CloseSession:
		return m.closeSession(inc, op.CloseSession)
	case *wire.Command_Lock:
		return m.lock(inc, seq, op.Lock)
	case *wire.Command_Unlock:
		return m.unlock(op.Unlock)
	case *wire.Command_Withdraw:
		return m.withdraw(inc, op.Withdraw)
	case *wire.Command_Proclaim:
		return m.proclaim(op.Proclaim)
	case *wire.Command_Acquire:
		return m.acquire(inc, seq, op.Acquire)
	case *wire.Command_Release:
		return m.releasePermit(op.Release)
	case *wire.Command_Resize:
		return m.resize(op.Resize)
	case *wire.Command_Write:
		return m.write(op.Write)
	case *wire.Command_RemoveMember:
		return m.removeMember(inc, op.RemoveMember)
	case *wire.Command_AdmitMember:
		return m.admitMember(op.AdmitMember)
	case *wire.Command_SetGroupConfig:
		return m.setGroupConfig(op.SetGroupConfig)
	case *wire.Command_AttachSession:
		return m.attachSession(inc, op.AttachSession)
	case *wire.Command_SetCheck:
		return m.setCheck(inc, op.SetCheck)
	case *wire.Command_DropCheck:
		return m.dropCheck(inc, op.DropCheck)
	case *wire.Command_ReportGossip:
		return m.reportGossip(op.ReportGossip)
	case *wire.Command_ReportProcess:
		return reportProcess(m, op.ReportProcess)
	case *wire.Command_RaiseLevel:
		return m.raiseLevel(inc, op.RaiseLevel)
	case *wire.Command_RenewClients:
		return m.renewClients(op.RenewClients)
	case *wire.Command_CreateSession:
		return m.createSession(inc, op.CreateSession.Session)
	case *wire.Command_RenewSession:
		return m.renewSession(op.RenewSession)
	case *wire.Command_Refill:
		if m.levels.agreed >= wire.LevelLinger {
			return m.refill(op.Refill)
		}
	case *wire.Command_Downgrade:
		if x := (sharing{m}); x.hasShared() {
			return x.downgrade(op.Downgrade)
		}
	case *wire.Command_LockSet:
		if x := (setting{m}); x.hasSets() {
			return x.lock(inc, seq, op.LockSet)
		}
	case *wire.Command_UnlockSet:
		if x := (setting{m}); x.hasSets() {
			return x.unlock(op.UnlockSet)
		}
	case *wire.Command_RunJob:
		if x := (jobRuns{m}); x.hasJobs() {
			return x.request(inc, seq, op.RunJob)
		}
	case *wire.Command_EndRun:
		if x := (jobRuns{m}); x.hasJobs() {
			return x.end(op.EndRun)
		}
	case *wire.Command_DeleteJob:
		if x := (jobRuns{m}); x.hasDeleteJob() {
			return x.delete(op.DeleteJob)
		}
	case *wire.Command_JoinShards:
		if x := (sharding{m}); x.hasShards() {
			return x.join(op.JoinShards)
		}
	case *wire.Command_LeaveShards:
		if x := (sharding{m}); x.hasShards() {
			return x.leave(op.LeaveShards)
		}
	case *wire.Command_ReleaseShards:
		if x := (sharding{m}); x.hasShards() {
			return x.release(op.ReleaseShards)
		}
	case *wire.Command_ResizeShards:
		if x := (sharding{m}); x.hasShards() {
			return x.resize(op.ResizeShards)
		}
	case *wire.Command_Extend:
		if x := (bounding{m}); x.hasMaxHold() {
			return x.extend(op.Extend)
		}
	case *wire.Command_CreateGroup:
		if x := (grouping{m}); x.hasGroups() {
			return x.create(op.CreateGroup)
		}
	case *wire.Command_DropGroup:
		if x := (grouping{m}); x.hasGroups() {
			return x.drop(op.DropGroup)
		}
	case *wire.Command_FollowMembers:
		if x := (grouping{m}); x.isFurther() {
			return x.follow(op.FollowMembers)
		}
	case *wire.Command_SealGroup:
		if x := (grouping{m}); x.isFurther() {
			return x.seal(op.SealGroup)
		}
	}
	return m.refuse(wire.Code_INVALID, "unknown command")
}
