package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/netns"
)

// readyLimits are the largest sizes of the frame that a lab sends when it is up or has failed.
var readyLimits = control.Limits{control.Reply: 0, control.Close: control.MaxReason}

// Start starts a lab as a detached process, and returns when it is up. The process gets job as
// JSON, the bound socket, and a pipe on which it reports that it is up or why it failed.
func (k *Kind) Start(ctx context.Context, name string, job any) error {
	if err := CheckName(name); err != nil {
		return err
	}
	input, err := json.Marshal(labJob{Name: name, CrashLog: k.CrashLog(name), Job: job})
	if err != nil {
		return err
	}
	listener, err := k.listen(ctx, name)
	if err != nil {
		return err
	}
	defer listener.Close()
	socket, err := listener.File()
	if err != nil {
		return err
	}
	defer socket.Close()
	ready, readyWriter, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command("/proc/self/exe", k.Command)
	cmd.Stdin, cmd.ExtraFiles = strings.NewReader(string(input)), []*os.File{socket, readyWriter}
	crashLog := k.CrashLog(name)
	if f := createCrashLog(crashLog); f != nil {
		defer f.Close()
		cmd.Stderr = f
	}
	err = startDetached(cmd)
	readyWriter.Close()
	if err != nil {
		removeEmptyCrashLog(crashLog)
		return err
	}
	return k.awaitReady(ctx, cmd, ready, crashLog)
}

// awaitReady waits until the process cmd of a lab reports on the pipe ready that it is up. If the
// process fails, or the context ends, awaitReady kills the process and returns the reason.
func (k *Kind) awaitReady(ctx context.Context, cmd *exec.Cmd, ready *os.File, crashLog string) error {
	detachCtx := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	_, err := control.New(ready, control.Config{Limits: readyLimits}).Read()
	if err == nil && detachCtx() {
		return cmd.Process.Release()
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // its error says less than err or the crash log
	text, _ := os.ReadFile(crashLog)
	crash, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	removeEmptyCrashLog(crashLog)
	var failed *control.CloseError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &failed):
		os.Remove(crashLog)                  // the log has the same text
		return (&Call{kind: k}).WrapErr(err) // decodes the lab's error
	case crash != "":
		return fmt.Errorf("the lab's process ended at once: %s (see %s)", crash, crashLog)
	}
	return fmt.Errorf("the lab's process ended at once: %w", err)
}

// listen binds the socket of a lab. It returns k.AlreadyUp if a lab of the name is up, and an
// *otherUserError if another user has bound the name. After a lab dies, the kernel may keep the
// name in use for a moment: listen retries while nothing accepts connections, for maxWait.
func (k *Kind) listen(ctx context.Context, name string) (*net.UnixListener, error) {
	const maxWait, retryInterval = 10 * time.Second, 5 * time.Millisecond
	for start := time.Now(); ; time.Sleep(retryInterval) {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: k.Socket(name), Net: "unix"})
		if !errors.Is(err, unix.EADDRINUSE) {
			return listener, err
		}
		err = k.Ping(ctx, name)
		var foreign *otherUserError
		var gone *NotUpError
		switch {
		case errors.As(err, &foreign):
			return nil, err
		case !errors.As(err, &gone):
			return nil, k.AlreadyUp
		case time.Since(start) > maxWait:
			return nil, fmt.Errorf("the name %s is still in use after %v, but nothing accepts connections; try %s", name, maxWait, k.NameFlag)
		}
	}
}

// startDetached starts cmd in new namespaces and a new session, so that it outlives this process.
func startDetached(cmd *exec.Cmd) error {
	if err := netns.Available(); err != nil {
		return err
	}
	if err := netns.Unshare(cmd); err != nil {
		return err
	}
	cmd.SysProcAttr.Pdeathsig = 0 // Unshare has set a signal
	cmd.SysProcAttr.Setsid = true
	return cmd.Start()
}

// List returns the names of this user's labs that are up, sorted, from the sockets in
// /proc/net/unix. A lab that does not respond counts as up. List ignores sockets that other
// users have bound under such names.
func (k *Kind) List(ctx context.Context) (names []string, err error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	seen := map[string]bool{}
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		name, ok := strings.CutPrefix(fields[len(fields)-1], k.Socket(""))
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		err := k.Ping(ctx, name)
		var silent *NotRespondingError
		if err == nil || errors.As(err, &silent) { // else it is another user's, or was just taken down
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, lines.Err()
}
