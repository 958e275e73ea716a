package conclavehttp_test

import (
	"context"
	"errors"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A job is shown with its last runs and its last success; hostile keys and errors are text.
func TestConsole_Jobs(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	want(t, listing(serve(t, n, nil).page("show", "jobs")), "None.") // what a console has read it shows for a while
	const hostile = "<script>alert(1)</script>"
	once := func(job, key string, result error) {
		err := n.Job(job).Once(t.Context(), key, func(context.Context, conclave.Fence) error { return result })
		if !errors.Is(err, result) {
			t.Fatal(err)
		}
	}
	once("report", "2026-11-25", nil)
	once("report", "2026-11-26", errors.New("no paper"))
	once(hostile, hostile, errors.New(hostile))
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- n.Job("report").Once(t.Context(), "2026-11-27", func(context.Context, conclave.Fence) error {
			close(begun)
			<-end
			return nil
		})
	}()
	<-begun

	site := serve(t, n, nil)
	body := listing(site.page("show", "jobs"))
	want(t, body, ">report<", ">2026-11-25<", ">done<", ">2026-11-26<", ">failed<", "no paper", ">2026-11-27<", ">running<", "&lt;script&gt;", "none retained")
	wantNot(t, body, hostile)
	body = listing(site.page("show", "jobs", "prefix", "report", "of", grouptest.OwnSession(t, n).String()))
	want(t, body, ">report<", ">2026-11-27<")
	wantNot(t, body, "&lt;script&gt;", "none retained")
	other := grouptest.MustSession(t, n, nil)
	want(t, listing(site.page("show", "jobs", "of", other.ID().String())), "None")
	close(end)
	grouptest.Must(t, <-ended)
}
