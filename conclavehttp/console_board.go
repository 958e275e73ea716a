package conclavehttp

import (
	"bytes"
	"context"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"sync"
	"time"
)

// part is a section of the page, rendered. All browsers that show it share it.
type part struct {
	ID      string
	HTML    template.HTML
	event   []byte    // that sends it
	version uint64    // grows with each change
	read    time.Time // when it was last brought up to date, if it is a pane's
}

// board has the parts that browsers show.
type board struct {
	source
	templates *template.Template

	mu      sync.Mutex
	version uint64            // guarded by mu; of the latest change
	added   chan struct{}     // has a value after a stream shows another pane
	latest  *snapshot         // guarded by mu; what the node knows by itself
	taken   time.Time         // guarded by mu; when latest was
	own     map[string][]part // guarded by mu; from latest, by the group of the page: of the default one, and of those that streams show
	streams map[string]int    // guarded by mu; by the group that they ask for
	chart   chart             // guarded by mu
	panes   map[query]*pane   // guarded by mu
	valid   []validity        // guarded by mu; the certificates, as last read
}

// pane is a part that is read through the group.
type pane struct {
	part
	streams int           // that show it
	pause   time.Duration // until it is read again
}

const (
	refresh  = time.Second      // of what is shown
	slowly   = 10 * time.Second // of what changes seldom, or costs more
	keepPane = 10 * time.Second // that no stream shows
)

func newBoard(from source, templates *template.Template) *board {
	return &board{source: from, templates: templates, added: make(chan struct{}, 1), own: make(map[string][]part), streams: make(map[string]int), panes: make(map[query]*pane)}
}

// local returns the parts of a page of a group from what the node knows without asking the group, not older than a
// refresh.
func (b *board) local(now time.Time, group string) []part {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.taken) >= refresh || b.latest == nil {
		b.gather(now)
	}
	s := b.latest.of(group)
	if parts := b.own[s.Group]; parts != nil {
		return slices.Clone(parts)
	}
	return b.renderLocal(s, nil)
}

// gather takes what the node knows. b.mu is held.
func (b *board) gather(now time.Time) {
	b.taken, b.latest = now, takeSnapshot(b.node, now)
	b.latest.CanAct, b.latest.Expiring = b.canAct, expiring(b.valid)
	b.chart.add(now, b.latest.Metrics)
	b.latest.Chart = b.chart.plot(now)
	rendered := make(map[string][]part)
	for _, group := range append(slices.Collect(maps.Keys(b.streams)), "") {
		if s := b.latest.of(group); rendered[s.Group] == nil {
			rendered[s.Group] = b.renderLocal(s, b.own[s.Group])
		}
	}
	b.own = rendered
}

// renderLocal renders what the node knows, in place of earlier parts. b.mu is held, so one goroutine at a time renders.
func (b *board) renderLocal(s *snapshot, earlier []part) []part {
	var all []part
	for i, id := range []string{"summary", "members", "chart", "timeline"} {
		next := part{ID: id}
		if i < len(earlier) {
			next = earlier[i]
		}
		b.update(&next, b.html(id, s))
		all = append(all, next)
	}
	return all
}

// update changes a part, if it does. b.mu is held.
func (b *board) update(p *part, html template.HTML) {
	if p.HTML == html && p.version > 0 {
		return
	}
	b.version++
	p.HTML, p.event, p.version = html, event(p.ID, html), b.version
}

func (b *board) html(name string, data any) template.HTML {
	var out bytes.Buffer
	if err := b.templates.ExecuteTemplate(&out, name, data); err != nil {
		return template.HTML(template.HTMLEscapeString(fmt.Sprintf("template %s: %v", name, err)))
	}
	return template.HTML(out.String()) // the template has escaped it
}

// following is what a stream shows, and has sent.
type following struct {
	group   string // that its page asks for
	queries []query
	shown   string // the group whose parts it has sent
	version uint64 // of the latest part that it has sent
}

// show has the gatherer keep parts up to date for a stream, until hide.
func (b *board) show(f *following) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep(time.Now()) // else the stream would begin with what another one has left
	b.streams[f.group]++
	for _, q := range f.queries {
		p := b.panes[q]
		if p == nil {
			p = &pane{part: part{ID: q.kind.id()}}
			b.panes[q] = p
		}
		p.streams++
	}
	select {
	case b.added <- struct{}{}:
	default:
	}
}

func (b *board) hide(f *following) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams[f.group]--; b.streams[f.group] == 0 {
		delete(b.streams, f.group)
	}
	for _, q := range f.queries {
		b.panes[q].streams--
	}
}

// cached returns a part that is up to date, or nil.
func (b *board) cached(q query) *part {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.panes[q]
	if p == nil || p.read.IsZero() || time.Since(p.read) > p.pause {
		return nil
	}
	found := p.part
	return &found
}

// read brings a part up to date. It returns one that has the reason if it is not its turn
// soon enough, or ctx is done.
func (b *board) read(ctx context.Context, q query, pace *pacer) *part {
	idle := b.isIdle(q)
	if !idle {
		if err := pace.wait(ctx); err != nil {
			return &part{ID: q.kind.id(), HTML: b.html("unread", err)}
		}
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	answer := b.answer(bounded, q)
	html := b.html(q.kind.id(), answer)
	if q.kind == kindGroup {
		b.certify(answer.Validity)
	}
	if ctx.Err() != nil {
		return &part{ID: q.kind.id(), HTML: html}
	}
	return b.put(q, html, began, !idle)
}

// certify has the summary show certificates that expire.
func (b *board) certify(valid []validity) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(expiring(valid)) != len(expiring(b.valid)) {
		b.taken = time.Time{} // a page that is being made shows it as well
	}
	b.valid = valid
}

// put stores a part that was read. One that no stream shows is kept only if it was read in its turn: of those that cost the group
// nothing a client could have any number kept, by a prefix each.
func (b *board) put(q query, html template.HTML, began time.Time, inTurn bool) *part {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep(now)
	p := b.panes[q]
	if p == nil {
		p = &pane{part: part{ID: q.kind.id()}}
		if inTurn {
			b.panes[q] = p
		}
	}
	p.read, p.pause = now, q.pause(now.Sub(began))
	b.update(&p.part, html)
	found := p.part
	return &found
}

// sweep drops the panes that only requests have shown. b.mu is held.
func (b *board) sweep(now time.Time) {
	for q, p := range b.panes {
		if p.streams == 0 && now.Sub(p.read) > keepPane {
			delete(b.panes, q)
		}
	}
}

// due returns the pane that is to be read next, and when; or nil.
func (b *board) due() (q *query, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for candidate, p := range b.panes {
		if when := p.read.Add(p.pause); p.streams > 0 && (q == nil || when.Before(at)) {
			q, at = &candidate, when
		}
	}
	return q, at
}

// news returns the parts that a stream shows and that are newer than what it has sent.
func (b *board) news(f *following) (parts []part) {
	b.mu.Lock()
	defer b.mu.Unlock()
	add := func(p part, sent uint64) {
		if p.version > sent {
			parts = append(parts, p)
		}
	}
	own := f.version
	if shown := b.latest.of(f.group).Group; shown != f.shown { // the group was created, or deleted
		f.shown, own = shown, 0
	}
	for _, p := range b.own[f.shown] {
		add(p, own)
	}
	for _, q := range f.queries {
		if p := b.panes[q]; p != nil {
			add(p.part, f.version)
		}
	}
	f.version = b.version
	return parts
}
