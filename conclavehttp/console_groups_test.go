package conclavehttp_test

import (
	"errors"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func createGroup(t *testing.T, n *conclave.Node, name string) *conclave.Group {
	t.Helper()
	g, err := n.CreateGroup(grouptest.Bounded(t), name, conclave.GroupConfig{})
	grouptest.Must(t, err)
	return g
}

// With a further group the page has an overview of all, with the names as they can be shown.
func TestConsole_OverviewOfGroups(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	wantNot(t, serve(t, n, nil).page(), "<h3>Groups</h3>")
	for _, name := range []string{"tenant", "<b>\u202e"} {
		createGroup(t, n, name)
	}
	body := serve(t, n, nil).page()
	want(t, body, "<h3>Groups</h3>", "the default group", `<a href="?group=tenant#state"><bdi><b>tenant</b></bdi></a><small`, "number 1</small>",
		`<a href="?group=%3Cb%3E%E2%80%AE#state"><bdi><b>&lt;b&gt;\u202e</b></bdi></a>`, "<b>conclave</b></bdi></a> <em>on this page</em>")
	wantNot(t, body, `<span class="state bad">none</span>`)
	grouptest.Must(t, n.Close(t.Context()))
	wantNot(t, serve(t, n, nil).page(), "<h3>Groups</h3>")
}

// The page of a further group lists what that holds, and nothing of the default one; its links and forms lead to pages of it.
func TestConsole_FurtherGroup(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	const name = "a&b <c>"
	for at, g := range map[string]*conclave.Group{"default": n.Group, "tenant": createGroup(t, n, name)} {
		s := mustSession(t, g, at+" session")
		grouptest.MustLock(t, s.FencedLock(at+" lock"))
		grouptest.MustAcquire(t, s.Semaphore(at+" permits", 5), 2)
		grouptest.MustCampaign(t, s.Election(at+" election"), at)
		_, err := g.KV().Put(t.Context(), at+" key/x", nil)
		grouptest.Must(t, err)
	}
	var audit auditLog
	site := serve(t, n, &conclavehttp.ConsoleOptions{ShowKeys: true, Authorize: operator, Audit: audit.logger()})
	inGroup := "group=" + url.QueryEscape(name)
	for show, suffix := range map[string]string{"locks": " lock", "semaphores": " permits", "elections": " election", "keys": " key/", "sessions": " session"} {
		for at, group := range map[string]string{"default": "", "tenant": name} {
			body := site.page("group", group, "show", show)
			other := map[string]string{"default": "tenant", "tenant": "default"}[at]
			want(t, body, at+suffix)
			wantNot(t, body, other+suffix)
			_, listing, _ := strings.Cut(body, `id="listing"`)
			listing, _, _ = strings.Cut(listing, "</section>")
			_, links, _ := strings.Cut(body, `<nav aria-label="Listings">`)
			links, _, _ = strings.Cut(links, "</nav>")
			for link := range strings.SplitSeq(html.UnescapeString(listing+links), `href="?`) {
				if strings.Contains(link, `#state"`) && strings.HasPrefix(link, inGroup) != (group != "") {
					t.Errorf("%s of %s: a link leads to another group: %.80s", show, at, link)
				}
			}
		}
	}
	want(t, site.page("group", name), `<input type="hidden" name="group" value="a&amp;b &lt;c&gt;">`, "› a&amp;b &lt;c&gt;</bdi>")
	want(t, html.UnescapeString(site.page("group", name, "lock", "tenant lock")), "tenant session",
		`<a class="close" href="?`+inGroup+`&show=locks#state">`, `<a class="holds" href="?`+inGroup+`&of=`)
	want(t, site.page("group", n.Status().Group), "default lock", `<a class="holds" href="?of=`)
}

// Requests that wait in a further group are on its pages only, with the possible deadlock; so are the numbers of the group.
func TestConsole_FurtherGroupLive(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	tenant := createGroup(t, n, "tenant")
	a, b := mustSession(t, tenant, "a"), mustSession(t, tenant, "b")
	grouptest.MustLock(t, a.FencedLock("x"))
	grouptest.MustLock(t, b.FencedLock("y"))
	for s, lock := range map[*conclave.Session]string{a: "y", b: "x"} {
		defer grouptest.StartLock(t, s.FencedLock(lock)).Cancel()
	}
	site := serve(t, n, nil)
	site.events("").await("members", `data-label="Waiters">2<`)
	for part, text := range map[string]string{"summary": "2 waiting", "waiting": "Longest wait", "cycles": "Possible deadlocks", "chart": "<dd>2</dd>"} {
		site.events("?group=tenant").await(part, text)
	}
	want(t, site.page("group", "tenant", "lock", "x"), "Queue: 1 waiting", "in a cycle")
	body := site.page()
	want(t, body, "0 waiting")
	wantNot(t, body, "Longest wait", "Possible deadlocks")
}

// The page of a group that does not exist states that; one that is open when the group is deleted, or created, follows.
func TestConsole_NoGroup(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	site := serve(t, n, nil)
	const none = `There is no group <code class="name">tenant</code>`
	body := site.page("group", "tenant", "lock", "x")
	want(t, body, none)
	wantNot(t, body, conclave.ErrGroupNotFound.Error())
	page := site.events("?group=tenant")
	page.await("listing", none)
	l := createGroup(t, n, "tenant").FencedLock("held")
	grouptest.MustLock(t, l)
	page.await("members", `<bdi><b>tenant</b></bdi></a> <em>on this page</em>`)
	page.await("listing", "<bdi>held</bdi>")
	grouptest.Must(t, n.DeleteGroup(grouptest.Bounded(t), "tenant", conclave.Force()))
	page.await("listing", none)
	if w, _ := site.get("?group=" + strings.Repeat("x", 5000)); w.StatusCode != http.StatusBadRequest {
		t.Errorf("a long name: %s", w.Status)
	}
}

// A session of a further group is closed there, and Authorize and the audit log have the group.
func TestConsole_ClosesSessionOfFurtherGroup(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	tenant := createGroup(t, n, "tenant")
	var audit auditLog
	site := serve(t, n, &conclavehttp.ConsoleOptions{Audit: audit.logger(), Authorize: func(r *http.Request, act conclavehttp.Act) (string, error) {
		if act.Kind != conclavehttp.ActView && act.Group != "tenant" {
			return "", errors.New("this is the operator of tenant")
		}
		return "olga", nil
	}})
	s := mustSession(t, tenant, "importer")
	id := s.ID().String()
	want(t, site.page("group", "tenant", "show", "sessions"), `value="`+id+`"><input type="hidden" name="group" value="tenant">`, "with <code>--further-group</code>")
	for _, row := range []struct {
		act, target, group string
		status             int
		text               string
	}{
		{"close-session", id, "", http.StatusForbidden, "operator of tenant"},
		{"close-session", id, n.Status().Group, http.StatusForbidden, "operator of tenant"},
		{"transfer-leadership", n.Status().ID.String(), "tenant", http.StatusBadRequest, "the default group"},
		{"close-session", id, "tenant", http.StatusOK, `<a href="./?group=tenant">`},
	} {
		form := url.Values{"act": {row.act}, "target": {row.target}, "group": {row.group}}.Encode()
		w, body := site.send("POST", "act", form)
		if w.StatusCode != row.status || !strings.Contains(body, row.text) {
			t.Errorf("%+v: %s\n%s", row, w.Status, body)
		}
	}
	<-s.Done()
	want(t, audit.String(), "target="+id+" actor=olga result=done group=tenant")
	gone := url.Values{"act": {"close-session"}, "target": {id}, "group": {"tenant"}}.Encode()
	grouptest.Must(t, n.DeleteGroup(grouptest.Bounded(t), "tenant"))
	if w, body := site.send("POST", "act", gone); w.StatusCode != http.StatusConflict || !strings.Contains(body, "group not found") {
		t.Errorf("in a deleted group: %s\n%s", w.Status, body)
	}
}

func mustSession(t *testing.T, g *conclave.Group, name string) *conclave.Session {
	t.Helper()
	s, err := g.NewSession(grouptest.Bounded(t), &conclave.SessionConfig{Name: name, TTL: conclave.NoTTL})
	grouptest.Must(t, err)
	return s
}
