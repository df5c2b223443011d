package live

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/netns"
)

// prefix is what the sockets of this user's labs begin with. Abstract names leave
// nothing behind; the at sign stands for their first byte, which is 0.
func prefix() string { return fmt.Sprintf("@fabrictest/%d/", os.Geteuid()) }

// Up starts a lab and returns when its hosts stand.
func Up(cfg Config) error {
	text, err := cfg.Scenario.Marshal()
	if err != nil {
		return err
	}
	what, err := json.Marshal(job{Config: cfg, Text: string(text)})
	if err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: prefix() + cfg.Name, Net: "unix"})
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
	ready, readyEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command("/proc/self/exe", ServeCommand)
	cmd.Stdin, cmd.ExtraFiles = strings.NewReader(string(what)), []*os.File{socket, readyEnd}
	err = startDetached(cmd)
	readyEnd.Close()
	if err != nil {
		return err
	}
	line, err := bufio.NewReader(ready).ReadString('\n')
	if line = strings.TrimSpace(line); line == "up" {
		_, err := one(cfg.Name, &request{Verb: tellPID, PID: cmd.Process.Pid})
		return errors.Join(err, cmd.Process.Release())
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // its words say more
	if line == "" {
		return fmt.Errorf("the lab's process ended at once: %w", err)
	}
	return errors.New(line)
}

// startDetached starts cmd in namespaces of its own, to live on without us.
func startDetached(cmd *exec.Cmd) error {
	if err := netns.Available(); err != nil {
		return err
	}
	if err := netns.Enclose(cmd); err != nil {
		return err
	}
	cmd.SysProcAttr.Pdeathsig = 0
	cmd.SysProcAttr.Setsid = true
	return cmd.Start()
}

// List names the labs of this user that are up.
func List() (names []string, err error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if name, ok := strings.CutPrefix(fields[len(fields)-1], prefix()); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, lines.Err()
}

// ask sends a request with descriptors, and returns how to go on.
func ask(name string, r *request, files ...*os.File) (*net.UnixConn, *json.Decoder, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: prefix() + name, Net: "unix"})
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil, &NotUpError{name}
	}
	if err != nil {
		return nil, nil, err
	}
	if err = sendFiles(conn, files...); err == nil {
		err = json.NewEncoder(conn).Encode(r)
	}
	if err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("lab %s: %w", name, err)
	}
	return conn, json.NewDecoder(conn), nil
}

// one sends a request and takes its one answer.
func one(name string, r *request) (*answer, error) {
	conn, in, err := ask(name, r)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var a answer
	switch err := in.Decode(&a); {
	case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET):
		return nil, &NotUpError{name} // it goes down just now
	case err != nil:
		return nil, fmt.Errorf("lab %s: %w", name, err)
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return &a, nil
}

// Ask returns what a lab is like.
func Ask(name string) (*Info, error) {
	a, err := one(name, &request{Verb: askInfo})
	if err != nil {
		return nil, err
	}
	return a.Info, nil
}

// downWait is how long a lab has to be gone once it was told to.
const downWait = 10 * time.Second

// Down takes a lab down and returns when it is gone.
func Down(name string) error {
	if _, err := one(name, &request{Verb: askDown}); err != nil {
		return err
	}
	for deadline := time.Now().Add(downWait); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var gone *NotUpError
		if _, err := Ask(name); errors.As(err, &gone) {
			return nil
		}
	}
	return fmt.Errorf("lab %s is still there after %v", name, downWait)
}

// SetLink cuts the cables that a pattern names, or joins them again.
func SetLink(name, ports string, up bool) error {
	link := "down"
	if up {
		link = "up"
	}
	_, err := one(name, &request{Verb: askSet, Host: ports, Link: link})
	return err
}

// Impair replaces what the packets of the ports that a pattern names meet, by the
// impair section of a scenario, whose fabric must be the lab's own.
func Impair(name, ports, scenario string) error {
	_, err := one(name, &request{Verb: askSet, Host: ports, Impair: scenario})
	return err
}

// Exec runs a program in a host of a lab, with this process's standard
// descriptors and working folder, and returns its exit code. If they are a
// terminal, the program has one too.
func Exec(name, host string, args []string) (code int, err error) {
	r := &request{Verb: askExec, Host: host, Args: args, Env: os.Environ()}
	if r.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	r.Rows, r.Columns, r.Terminal = size(os.Stdin)
	if _, _, ok := size(os.Stdout); !ok {
		r.Terminal = false
	}
	conn, in, err := ask(name, r, os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	files, err := receiveFiles(conn)
	if err != nil {
		return 0, fmt.Errorf("lab %s: %w", name, err)
	}
	defer closeAll(files)
	done := make(chan struct{})
	defer close(done)
	if len(files) == 1 {
		restore, err := attach(files[0], done)
		if err != nil {
			return 0, err
		}
		defer restore()
	} else {
		go forward(json.NewEncoder(conn), done)
	}
	for {
		var a answer
		if err := in.Decode(&a); err != nil {
			return 0, fmt.Errorf("lab %s went down", name)
		}
		switch {
		case a.Error != "":
			return 0, errors.New(a.Error)
		case a.Exit != nil:
			return *a.Exit, nil
		}
	}
}

// forward passes signals on to the program, which is no child of ours.
func forward(to *json.Encoder, done <-chan struct{}) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	for {
		select {
		case s := <-signals:
			if to.Encode(signalled{int(s.(syscall.Signal))}) != nil {
				return
			}
		case <-done:
			return
		}
	}
}

// attach joins our terminal to the program's.
func attach(master *os.File, done <-chan struct{}) (restore func(), err error) {
	raw, err := makeRaw(os.Stdin)
	if err != nil {
		return nil, err
	}
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		_, _ = io.Copy(os.Stdout, master) // ends with the program
	}()
	go func() { _, _ = io.Copy(master, os.Stdin) }() // ends with us
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
	return func() { <-shown; raw() }, nil
}
