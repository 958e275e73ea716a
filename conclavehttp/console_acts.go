package conclavehttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/attempts"
)

const (
	actTimeout  = 30 * time.Second
	formTimeout = 5 * time.Second
	maxForm     = 4 << 10 // bytes
)

var (
	errManyActs     = errors.New("too many acts are under way")
	errManyRefusals = errors.New("too many acts from this address were refused")
	errCrossSite    = errors.New("the request comes from a page of another site")
	errReadOnly     = errors.New("this console is read-only: ConsoleOptions.Authorize and Audit are not both set, or Audit drops the level Info")
)

// actResult is what the page about an act shows.
type actResult struct {
	Group               string // a further one; "": the default one
	Act, Target, Result string
	Err                 error
}

// act carries out what a form asks for, if that is allowed.
func (h *ConsoleHandler) act(w http.ResponseWriter, r *http.Request) {
	if why := h.refusal(r); why != "" {
		if h.mayRefuse(w, r) {
			h.recordRefused(h.recorder(r, Act{}, ""), "", errors.New(why))
			http.Error(w, why, http.StatusForbidden)
		}
		return
	}
	act, target, err := h.readAct(w, r)
	record := h.recorder(r, act, target)
	actor, status := "", http.StatusBadRequest
	if err == nil {
		status = http.StatusForbidden
		actor, err = h.authorize(r, act)
	}
	if err != nil {
		if h.mayRefuse(w, r) {
			h.recordRefused(record, actor, err)
			h.answer(w, status, actResult{Group: act.Group, Act: act.Kind.String(), Target: target, Result: "refused", Err: err})
		}
		return
	}
	if !take(w, h.acts) {
		h.recordRefused(record, actor, errManyActs)
		return
	}
	defer release(h.acts)
	record(actor, "allowed", nil)
	// It goes on if the browser disconnects, so that the audit log has its end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actTimeout)
	defer cancel()
	result := "done"
	status = http.StatusOK
	if err = h.carryOut(ctx, act); err != nil {
		result, status = "failed", statusOf(err)
	}
	record(actor, result, err)
	h.answer(w, status, actResult{Group: act.Group, Act: act.Kind.String(), Target: target, Result: result, Err: err})
}

func (h *ConsoleHandler) authorize(r *http.Request, act Act) (actor string, err error) {
	if err := h.crossSite.Check(r); err != nil {
		return "", fmt.Errorf("%w: %w", errCrossSite, err)
	}
	if !h.opts.canAct() {
		return "", errReadOnly
	}
	return h.opts.Authorize(r, act)
}

// mayRefuse reports whether a refused act is recorded; else it has answered that there were too many of the host.
// Acts that are authorized do not depend on it: what other clients of the host do, or a page of another
// site by the operator's own browser, keeps no operator from acting.
func (h *ConsoleHandler) mayRefuse(w http.ResponseWriter, r *http.Request) bool {
	wait, first := h.refused.Begin(attempts.Host(r.RemoteAddr))
	if wait == 0 {
		return true
	}
	if first {
		h.recordRefused(h.recorder(r, Act{}, ""), "", errManyRefusals)
	}
	seconds := int(wait/time.Second) + 1
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	http.Error(w, fmt.Sprintf("%v: try again in %d s", errManyRefusals, seconds), http.StatusTooManyRequests)
	return false
}

// recordRefused records a refused act, unless the log is so slow that as many of these records are under way as may be: the
// client has its answer all the same.
func (h *ConsoleHandler) recordRefused(record func(actor, result string, err error), actor string, err error) {
	select {
	case h.refusals <- struct{}{}:
		defer release(h.refusals)
		record(actor, "refused", err)
	default:
	}
}

// readAct reads the form. Its sender is not authorized yet, and has little time.
func (h *ConsoleHandler) readAct(w http.ResponseWriter, r *http.Request) (act Act, target string, err error) {
	in := http.NewResponseController(w)
	_ = in.SetReadDeadline(time.Now().Add(formTimeout)) // else Server.ReadTimeout counts
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	act, target, err = h.parseAct(r)
	if err == nil { // else the server, which skips the rest of the form, would wait for it
		_ = in.SetReadDeadline(time.Time{})
	}
	return act, target, err
}

func (h *ConsoleHandler) parseAct(r *http.Request) (act Act, target string, err error) {
	if err := r.ParseForm(); err != nil {
		return act, "", fmt.Errorf("%w form: %w", conclave.ErrInvalid, err)
	}
	target = r.PostForm.Get("target")
	group := h.further(r.PostForm.Get("group"))
	switch kind := r.PostForm.Get("act"); kind {
	case ActCloseSession.String():
		act.Kind, act.Group = ActCloseSession, group
		act.Session, err = conclave.ParseSessionID(target)
	case ActTransferLeadership.String():
		act.Kind = ActTransferLeadership
		err = act.Member.UnmarshalText([]byte(target))
	case ActRemoveMember.String():
		act.Kind = ActRemoveMember
		err = act.Member.UnmarshalText([]byte(target))
	default:
		err = fmt.Errorf("%w act: want close-session, transfer-leadership or remove-member, got %q", conclave.ErrInvalid, kind)
	}
	if err == nil && group != act.Group {
		err = fmt.Errorf("%w group: the act is about the members, which are those of the default group", conclave.ErrInvalid)
	}
	return act, target, err
}

func (h *ConsoleHandler) carryOut(ctx context.Context, act Act) error {
	switch act.Kind {
	case ActCloseSession:
		return h.closeSession(ctx, act)
	case ActTransferLeadership:
		return h.node.TransferLeadership(ctx, act.Member)
	default:
		return h.node.RemoveMember(ctx, act.Member)
	}
}

func statusOf(err error) int {
	for _, refusal := range []error{conclave.ErrInvalid, conclave.ErrSessionNotFound, conclave.ErrGroupNotFound, conclave.ErrLastVoter} {
		if errors.Is(err, refusal) {
			return http.StatusConflict
		}
	}
	return http.StatusServiceUnavailable
}

// recorder returns what writes to the audit log about a request.
func (h *ConsoleHandler) recorder(r *http.Request, act Act, target string) func(actor, result string, err error) {
	name := "" // of the member, which may be removed by the second line
	if act.Member != 0 {
		for _, m := range h.node.Status().Members {
			if m.ID == act.Member {
				name = m.Name
			}
		}
	}
	return func(actor, result string, err error) {
		if h.opts.Audit == nil {
			return
		}
		attributes := []any{"act", act.Kind.String(), "target", target, "actor", actor, "remote", r.RemoteAddr, "result", result}
		if act.Group != "" {
			attributes = append(attributes, "group", act.Group)
		}
		if name != "" {
			attributes = append(attributes, "name", name)
		}
		if err != nil {
			attributes = append(attributes, slog.Any("error", err))
		}
		h.opts.Audit.Info("console act", attributes...)
	}
}

func (h *ConsoleHandler) answer(w http.ResponseWriter, status int, result actResult) {
	h.render(w, "result", status, result)
}
