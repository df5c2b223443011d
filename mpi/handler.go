package mpi

// ErrorHandler handles the error of a call; the call returns its result. It runs without
// the rank's lock and may call the runtime.
type ErrorHandler func(*Comm, error) error

// ErrorsAreFatal is an ErrorHandler that aborts all ranks.
func ErrorsAreFatal(c *Comm, err error) error {
	c.rank.abort(1, err.Error())
	return err
}

// SetErrorHandler sets the handler for errors of this communicator, and of communicators
// and windows created from it later. With nil, the default, calls return their errors.
func (c *Comm) SetErrorHandler(h ErrorHandler) { c.handler = h }

// raise wraps the error of a call and passes it to the error handler. The caller does not
// hold the lock.
func (c *Comm) raise(call string, err error) error {
	if err == nil {
		return nil
	}
	if c == nil {
		return &Error{Op: call, Rank: Undefined, Comm: "no communicator", Err: err}
	}
	err = &Error{Op: call, Rank: c.me, Comm: c.name, Err: classify(err)}
	if c.handler == nil {
		return err
	}
	return c.handler(c, err)
}
