package drive

// maxUnanswered is the number of consecutive messages without an answer after
// which acknowledgements are no longer delayed.
const maxUnanswered = 4

// ackDelay decides whether acknowledgements wait to be sent with the
// application's next request: one system call for both, and the request first.
// They wait while the application answers each message at once, and no longer
// after maxUnanswered messages without an answer.
type ackDelay struct {
	pending     bool // packets were received, or timers expired, since the last send
	awaiting    bool // the application received something that it may answer
	interactive bool // recent messages were answered at once
	unanswered  int  // consecutive messages without an answer
}

// received notes that packets arrived, which the engine may have to acknowledge.
func (a *ackDelay) received() { a.pending = true }

// sent notes that everything the engine had to send is sent.
func (a *ackDelay) sent() { a.pending = false }

// posted notes that the application posted work, which counts as the answer to the
// message that it received before.
func (a *ackDelay) posted() {
	if a.awaiting {
		a.awaiting, a.interactive, a.unanswered = false, true, 0
	}
}

// delivered notes that a poll returned a completion. It reports whether
// acknowledgements wait for the application's answer.
func (a *ackDelay) delivered() (delay bool) {
	a.awaiting = true
	return a.interactive
}

// emptyPoll notes a poll without a completion, and whether packets were received in it. It reports
// whether acknowledgements wait for an answer of the application, which may see received RDMA
// writes in memory. If the application polls again instead of answering, acknowledgements are sent.
func (a *ackDelay) emptyPoll(received bool) (delay bool) {
	if received && !a.awaiting {
		a.awaiting = true
		return a.interactive
	}
	a.noteUnanswered()
	return false
}

// noteUnanswered ends the wait for an answer to the last message, if there is one: the application
// posted no work. After maxUnanswered messages in a row, acknowledgements are no longer delayed.
func (a *ackDelay) noteUnanswered() {
	if !a.awaiting {
		return
	}
	a.awaiting = false
	if a.unanswered++; a.unanswered >= maxUnanswered {
		a.interactive = false
	}
}
