package mpi

// ErrorHandler decides what becomes of an error: what it returns, the call does. It
// is called without the rank's lock, and may call what it likes.
type ErrorHandler func(*Comm, error) error

// ErrorsReturn has calls return their errors; so do all communicators at first.
func ErrorsReturn(_ *Comm, err error) error { return err }

// ErrorsAreFatal ends all ranks.
func ErrorsAreFatal(c *Comm, err error) error {
	c.k.abort(1, err.Error())
	return err
}

// SetErrorHandler says what becomes of errors of this communicator's calls, and of
// those of communicators and windows that are made of it from now on. Nil is
// ErrorsReturn.
func (c *Comm) SetErrorHandler(h ErrorHandler) { c.handler = h }

// raise hands the error of a call to the communicator's handler. No lock is held.
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
