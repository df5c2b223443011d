package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// drain is how long output may take to arrive once its program has ended.
const drain = 2 * time.Second

// Exec runs a program in a host of a lab, with this process's standard
// descriptors, environment and working folder, and returns its exit code. If they
// are a terminal, the program has one too.
//
// On a terminal a cancelled context ends the call, and the program with it; so does
// a terminal that is closed, also if nobody hears the signal that says so.
// Otherwise signals are for the program: they are passed on, and the context has
// a say only until it runs.
func Exec(ctx context.Context, name, host string, args []string) (code int, err error) {
	if len(args) == 0 {
		return 0, errors.New("no program to run")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &request{Verb: askExec, Host: host, Args: args, Env: os.Environ()}
	if r.Path, err = exec.LookPath(args[0]); err != nil {
		return 0, err
	}
	if r.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	r.Rows, r.Columns, r.Terminal = size(os.Stdin)
	if _, _, ok := size(os.Stdout); !ok {
		r.Terminal = false
	}
	// From before the program runs: the first may come as soon as it does.
	signals := make(chan os.Signal, 8)
	if !r.Terminal {
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
		defer signal.Stop(signals)
	}
	c, err := ask(ctx, name, promptly, r, os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		return 0, err
	}
	defer c.close()
	files, err := receiveFiles(c.conn)
	if err != nil {
		return 0, c.wentDown(c.explain(err))
	}
	defer closeAll(files)
	if len(files) == 0 && !c.stop() {
		return 0, context.Cause(ctx)
	}
	_ = c.conn.SetDeadline(time.Time{})
	if ctx.Err() != nil { // it may have ended just before
		_ = c.conn.SetDeadline(time.Unix(1, 0))
	}
	done := make(chan struct{})
	defer close(done)
	if len(files) > 0 {
		restore, err := attach(files[0], done, func() { cancel(errors.New("the terminal was closed")) })
		if err != nil {
			return 0, err
		}
		defer restore()
	} else {
		go c.forward(signals, done)
	}
	return c.exit()
}

// exit waits for the program's end.
func (c *call) exit() (code int, err error) {
	for {
		a, err := c.answer()
		switch {
		case err != nil:
			return 0, c.wentDown(err)
		case a.Exit != nil:
			return *a.Exit, nil
		case a.Heard:
			_ = c.conn.SetDeadline(time.Time{})
		}
	}
}

// wentDown says of a lab that is no longer there that it was: it has taken our
// program, so that advice to start one would mislead.
func (c *call) wentDown(err error) error {
	var gone *NotUpError
	switch {
	case !errors.As(err, &gone):
		return err
	case gone.Trace != "":
		return fmt.Errorf("lab %s crashed: see %s", c.name, gone.Trace)
	}
	return fmt.Errorf("lab %s went down", c.name)
}

// forward passes signals on to the program, which is no child of ours. A lab that
// does not say that it has heard them is stuck, and must not keep us.
func (c *call) forward(signals <-chan os.Signal, done <-chan struct{}) {
	to := json.NewEncoder(c.conn)
	for {
		select {
		case s := <-signals:
			_ = c.conn.SetDeadline(time.Now().Add(promptly))
			if to.Encode(signalled{int(s.(syscall.Signal))}) != nil {
				return
			}
		case <-done:
			return
		}
	}
}

// watched is a file that tells of its end.
type watched struct {
	*os.File
	ended func()
}

func (w watched) Read(b []byte) (int, error) {
	n, err := w.File.Read(b)
	if err != nil {
		w.ended()
	}
	return n, err
}

// attach joins our terminal to the program's. It tells when ours is closed: one that
// passes on every key has no other end.
func attach(master *os.File, done <-chan struct{}, closed func()) (restore func(), err error) {
	raw, err := makeRaw(os.Stdin)
	if err != nil {
		return nil, err
	}
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		_, _ = io.Copy(os.Stdout, master) // ends with the last program that has the terminal
	}()
	go func() { _, _ = io.Copy(master, struct{ io.Reader }{watched{os.Stdin, closed}}) }() // ends with us
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	go func() {
		defer signal.Stop(changes)
		for {
			select {
			case <-changes:
				if rows, columns, ok := size(os.Stdin); ok {
					resize(master, rows, columns)
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		select {
		case <-shown:
		case <-time.After(drain): // something that the program left behind keeps it open
		}
		raw()
	}, nil
}
