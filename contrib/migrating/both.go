package migrating

import (
	"context"

	"github.com/conclave-go/conclave"
)

//snippet:both

// bookUnderBoth is the release between the old lock and the new one. underOld is the code before the migration.
func bookUnderBoth(
	ctx context.Context,
	underOld func(ctx context.Context, work func(ctx context.Context) error) error,
	lock *conclave.FencedLock,
	book func(ctx context.Context, fence conclave.Fence) error,
) error {
	return underOld(ctx, func(ctx context.Context) error { // the old lock first, in every process
		return lock.Do(ctx, book)
	})
}

//snippet:end
