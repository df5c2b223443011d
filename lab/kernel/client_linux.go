package kernel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/netns"
)

// prefix is what the sockets of this user's kernel labs begin with. Abstract names
// leave nothing behind; the at sign stands for their first octet, which is 0.
func prefix() string { return fmt.Sprintf("@fabrictest-kernel/%d/", os.Geteuid()) }

// Start brings up a lab that stays up, in a process of its own, and returns when its
// guests are ready.
func Start(ctx context.Context, name string, cfg Config) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, err := cfg.withDefaults(); err != nil {
		return err
	}
	if err := cfg.absolute(); err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: prefix() + name, Net: "unix"})
	if errors.Is(err, unix.EADDRINUSE) {
		return ErrUp
	}
	if err != nil {
		return err
	}
	defer l.Close()
	socket, err := l.File()
	if err != nil {
		return err
	}
	defer socket.Close()
	trace, err := prepareFolder(name, &cfg)
	if err != nil {
		return err
	}
	if trace != nil {
		defer trace.Close()
	}
	what, err := json.Marshal(job{Name: name, Config: cfg})
	if err != nil {
		return err
	}
	ready, readyEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command("/proc/self/exe", ServeCommand)
	cmd.Stdin, cmd.ExtraFiles = strings.NewReader(string(what)), []*os.File{socket, readyEnd}
	if trace != nil {
		cmd.Stderr = trace
	}
	err = startDetached(cmd)
	readyEnd.Close()
	if err != nil {
		return err
	}
	return awaitReady(ctx, cmd, ready, trace)
}

// prepareFolder empties the folder of a lab, and gives it to the lab for its
// consoles. Without one the lab does without.
func prepareFolder(name string, cfg *Config) (trace *os.File, err error) {
	dir := folderOf(name)
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	old, _ := filepath.Glob(filepath.Join(dir, "guest*.console"))
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return nil, err
		}
	}
	if cfg.Consoles == "" {
		cfg.Consoles = dir
	}
	return os.OpenFile(filepath.Join(dir, "stderr"), os.O_CREATE|os.O_RDWR|os.O_TRUNC|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
}

// startDetached starts cmd in namespaces of its own, to live on without us.
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

// awaitReady waits until a lab says that it is up, or what keeps it from it.
func awaitReady(ctx context.Context, cmd *exec.Cmd, ready, trace *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	var a answer
	err := json.NewDecoder(ready).Decode(&a)
	if err == nil && a.err() == nil && stop() {
		return cmd.Process.Release()
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // its words say more
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		return a.err()
	}
	if trace != nil {
		if text, _ := os.ReadFile(trace.Name()); len(text) > 0 {
			first, _, _ := strings.Cut(string(text), "\n")
			return fmt.Errorf("the lab's process ended at once: %s (all of it in %s)", first, trace.Name())
		}
	}
	return fmt.Errorf("the lab's process ended at once: %w", err)
}

// List names the kernel labs of this user that are up.
func List() (names []string, err error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		name, ok := strings.CutPrefix(fields[len(fields)-1], prefix())
		if !ok || slices.Contains(names, name) {
			continue
		}
		if conn, _, err := dial(name); err == nil {
			conn.Close()
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, lines.Err()
}

// dial connects to a lab of our own: anybody can listen at its name, and would get
// our descriptors and our environment.
func dial(name string) (conn *net.UnixConn, pid int, err error) {
	if err := CheckName(name); err != nil {
		return nil, 0, err
	}
	conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: prefix() + name, Net: "unix"})
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, 0, &NotUpError{Name: name}
	}
	if err != nil {
		return nil, 0, err
	}
	who, err := peer(conn)
	if err == nil && int(who.Uid) != os.Geteuid() {
		err = fmt.Errorf("the name %s is held by another user, %d, whom nothing was told: give another name with --lab", name, who.Uid)
	}
	if err != nil {
		conn.Close()
		return nil, 0, err
	}
	return conn, int(who.Pid), nil
}

// promptly is how long a lab has to answer what takes no time.
const promptly = 10 * time.Second

// call is a request under way.
type call struct {
	name string
	pid  int
	conn *net.UnixConn
	stop func() bool
	ctx  context.Context // of this call only
}

// ask sends a request with descriptors. The lab has so long to answer; 0 is for ever.
func ask(ctx context.Context, name string, wait time.Duration, r request, files ...*os.File) (*call, error) {
	conn, pid, err := dial(name)
	if err != nil {
		return nil, err
	}
	if wait != 0 {
		_ = conn.SetDeadline(time.Now().Add(wait))
	}
	c := &call{ctx: ctx, name: name, pid: pid, conn: conn}
	c.stop = context.AfterFunc(ctx, func() { conn.Close() })
	if err = sendFiles(conn, files...); err == nil {
		err = json.NewEncoder(conn).Encode(r)
	}
	if err != nil {
		c.close()
		return nil, c.explain(err)
	}
	return c, nil
}

func (c *call) close() {
	c.stop()
	c.conn.Close()
}

// answer takes one, and its descriptors.
func (c *call) answer() (a answer, files []*os.File, err error) {
	if files, err = receiveFiles(c.conn); err == nil {
		// Octet by octet: what follows belongs to the next answer.
		var line []byte
		if line, err = readLine(c.conn); err == nil {
			err = json.Unmarshal(line, &a)
		}
	}
	if err != nil {
		closeAll(files)
		return a, nil, c.explain(err)
	}
	if err := a.err(); err != nil {
		closeAll(files)
		return a, nil, err
	}
	return a, files, nil
}

// explain says what an error of the connection means.
func (c *call) explain(err error) error {
	switch {
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("kernel lab %s does not answer: its process %d is stopped or has no time; 'kill -CONT %[2]d' lets it go on, 'kill -9 %[2]d' ends it", c.name, c.pid)
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return &NotUpError{Name: c.name} // it goes down just now
	}
	return fmt.Errorf("kernel lab %s: %w", c.name, err)
}

// readLine reads up to the end of a line, and no further.
func readLine(r io.Reader) ([]byte, error) {
	var line []byte
	var one [1]byte
	for {
		if _, err := io.ReadFull(r, one[:]); err != nil {
			return nil, err
		}
		if one[0] == '\n' {
			return line, nil
		}
		if len(line) > consoleLimit*8 {
			return nil, errors.New("the answer is too long")
		}
		line = append(line, one[0])
	}
}
