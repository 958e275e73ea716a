package sim

import "github.com/conclave-go/conclave/internal/wire"

func lockCommand(name string, s *simSession, handle uint64, wait bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{Name: name, Session: s.id[:], Handle: handle, Wait: wait}}}
}

func unlockCommand(name string, s *simSession, handle, fence uint64) *wire.Command {
	return &wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{Name: name, Session: s.id[:], Handle: handle, Fence: fence}}}
}

func campaignCommand(name string, s *simSession, handle uint64, wait bool, value string) *wire.Command {
	return &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{
		Name: name, Session: s.id[:], Handle: handle, Wait: wait, Election: true, Value: []byte(value),
	}}}
}

func acquireCommand(name string, s *simSession, limit, permits uint32, wait bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Name: name, Session: s.id[:], Limit: limit, Permits: permits, Wait: wait,
	}}}
}

func releaseCommand(name string, s *simSession, fence uint64) *wire.Command {
	return &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{Name: name, Session: s.id[:], Fence: fence}}}
}

func writeCommand(ops ...*wire.KeyOp) *wire.Command {
	return &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: ops}}}
}

func closeCommand(s *simSession, graceful bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: s.id[:], Graceful: graceful}}}
}
