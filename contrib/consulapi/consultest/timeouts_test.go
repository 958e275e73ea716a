package consultest

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/conclave-go/conclave/contrib/consulapi"
)

// The timeouts of a server that are shorter than its wait do not end a blocking query.
func TestBlocking_TimeoutsOfTheServer(t *testing.T) {
	a := start(t, 1)
	const timeout, wait = 200 * time.Millisecond, 600 * time.Millisecond
	query := func(set func(*httptest.Server)) error {
		s := httptest.NewUnstartedServer(consulapi.Handler(a.group.Node(0), nil))
		set(s)
		s.Start()
		defer s.Close()
		c := dial(t, s.URL)
		_, meta, err := c.KV().Get("absent", nil)
		must(t, err)
		_, _, err = c.KV().Get("absent", (&api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: wait}).WithContext(bounded(t)))
		return err
	}
	for name, set := range map[string]func(*httptest.Server){
		"ReadTimeout":  func(s *httptest.Server) { s.Config.ReadTimeout = timeout },
		"WriteTimeout": func(s *httptest.Server) { s.Config.WriteTimeout = timeout },
	} {
		if err := query(set); err != nil {
			t.Errorf("with a %s: %v", name, err)
		}
	}
}
