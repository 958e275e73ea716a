package wire

// Rechecker looks up a request by its ticket after a snapshot has replaced the state.
type Rechecker interface {
	// Recheck returns the outcome that the ticket's request would have got, or nil
	// while it is queued. The session is that of the request; semaphore is "" for a
	// lock, an election or a job; job is the name in the space JOB, or "".
	Recheck(t Ticket, session ID, semaphore, job string) *Reply
}
