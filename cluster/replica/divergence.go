package replica

import (
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// A member that stops because its state differs from that of a majority of the voters
// may have the same difference on its disk: in its checkpoint, or in what it would write next. So
// the directory is not used again. Without the record, a member that is started again
// would act on that state until the next comparison.

// DivergenceRecord is the record of a directory that is not used again.
const DivergenceRecord = "divergence"

// recordDivergence records the divergence that the loop of the log's replica has failed with, if it has.
// After a crash before the record is written, the next process compares again.
func recordDivergence(to *raftlog.Log, logger *slog.Logger, failure error) {
	var d *core.DivergedError
	if !errors.As(failure, &d) {
		return
	}
	data, err := proto.Marshal(&wire.Divergence{
		Version: wire.DivergenceVersion, Index: d.Index, Digest: d.Digest, Majority: d.Majority,
	})
	if err == nil {
		err = to.SetLocal(DivergenceRecord, data)
	}
	if err != nil {
		logger.Error("divergence not recorded", "error", err)
	}
}

// CheckDivergence refuses a directory whose state differs from the group's.
func CheckDivergence(log *raftlog.Log) error {
	data, err := log.Local(DivergenceRecord)
	if err != nil || data == nil {
		return err
	}
	d := new(wire.Divergence)
	if err := proto.Unmarshal(data, d); err != nil {
		return fmt.Errorf("%w: the record of a divergence: %v", storage.ErrCorrupt, err)
	}
	return fmt.Errorf("%w; the directory cannot be used again: keep it for the investigation, and check this machine's memory and disk",
		&core.DivergedError{Index: d.GetIndex(), Digest: d.GetDigest(), Majority: d.GetMajority()})
}
