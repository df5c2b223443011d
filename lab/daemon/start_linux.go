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

// readyLimits are those of the frame that a lab sends when it is up, or has failed.
var readyLimits = control.Limits{control.Reply: 0, control.Close: control.MaxReason}

// Start starts a lab with a job, and returns when it is up.
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
	ready, readyEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command("/proc/self/exe", k.Command)
	cmd.Stdin, cmd.ExtraFiles = strings.NewReader(string(input)), []*os.File{socket, readyEnd}
	crashLog := k.CrashLog(name)
	if f := createCrashLog(crashLog); f != nil {
		defer f.Close()
		cmd.Stderr = f
	}
	err = startDetached(cmd)
	readyEnd.Close()
	if err != nil {
		removeEmptyCrashLog(crashLog)
		return err
	}
	return k.awaitReady(ctx, cmd, ready, crashLog)
}

// awaitReady waits until a lab is up, or returns why it failed.
func (k *Kind) awaitReady(ctx context.Context, cmd *exec.Cmd, ready *os.File, crashLog string) error {
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	_, err := control.New(ready, control.Config{Limits: readyLimits}).Read()
	if err == nil && stop() {
		return cmd.Process.Release()
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // its frame has the reason
	crash := firstLine(crashLog)
	removeEmptyCrashLog(crashLog)
	var failed *control.CloseError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &failed):
		os.Remove(crashLog) // it has the same text
		return (&Call{kind: k}).WrapErr(err)
	case crash != "":
		return fmt.Errorf("the lab's process ended at once: %s (see %s)", crash, crashLog)
	}
	return fmt.Errorf("the lab's process ended at once: %w", err)
}

// listen binds the socket of a lab. After a lab dies, the kernel may keep its name
// for a moment: listen retries while nothing accepts connections there.
func (k *Kind) listen(ctx context.Context, name string) (*net.UnixListener, error) {
	const maxWait, retryInterval = 10 * time.Second, 5 * time.Millisecond
	for begun := time.Now(); ; time.Sleep(retryInterval) {
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
		case !errors.As(err, &gone) || time.Since(begun) > maxWait:
			return nil, k.AlreadyUp
		}
	}
}

// startDetached starts cmd in new namespaces and a new session, to outlive this
// process.
func startDetached(cmd *exec.Cmd) error {
	if err := netns.Available(); err != nil {
		return err
	}
	if err := netns.Unshare(cmd); err != nil {
		return err
	}
	cmd.SysProcAttr.Pdeathsig = 0
	cmd.SysProcAttr.Setsid = true
	return cmd.Start()
}

// List returns the names of this user's labs. It ignores sockets that other users
// have bound under such names.
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
		if err == nil || errors.As(err, &silent) { // else another user's, or just taken down
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, lines.Err()
}
