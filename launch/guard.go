package launch

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// The guard is this program itself, started again under another name. It lives
// beside the launcher, learns the process group of every rank on its standard
// input, and does nothing until that closes: if the launcher is killed with no
// chance to clean up, the guard does it in its place.
const (
	guardName = "fabrictest-guard"
	guardEnv  = "FABRICTEST_INTERNAL_GUARD"
)

// init is where the guard's program begins, and ends. A call from main would be
// plainer, but a main that forgets it would start itself without end.
func init() {
	if mark := os.Getenv(guardEnv); mark != "" && os.Args[0] == guardName {
		guardMain(mark, os.Stdin)
		os.Exit(0)
	}
}

func guardMain(mark string, in io.Reader) {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	groups := map[int]bool{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		text := lines.Text()
		sign, digits := text[:min(1, len(text))], strings.TrimLeft(text, "+-")
		if pid, err := strconv.Atoi(digits); err == nil && pid > 1 {
			groups[pid] = sign == "+"
		}
	}
	for pid, alive := range groups {
		if alive {
			_ = unix.Kill(-pid, unix.SIGKILL)
		}
	}
	sweep(mark, -1)
}

// guard is the launcher's side of it.
type guard struct {
	cmd  *exec.Cmd
	mark string

	mu   sync.Mutex
	pipe io.WriteCloser
}

// startGuard starts a guard for the processes with a mark, which it chooses.
func startGuard() (*guard, error) {
	var id [12]byte
	_, _ = rand.Read(id[:]) // never fails
	g := &guard{mark: hex.EncodeToString(id[:])}
	path, err := ownProgram()
	if err != nil {
		return nil, err
	}
	g.cmd = &exec.Cmd{
		Path: path, Args: []string{guardName}, Dir: "/", Env: []string{guardEnv + "=" + g.mark},
		// A session of its own: the terminal's Ctrl-C is for the launcher.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if g.pipe, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard (%s): %w", path, err)
	}
	return g, nil
}

// add and remove tell the guard of a process group. If the guard is no longer
// there, someone has killed it, and Pdeathsig remains.
func (g *guard) add(pid int)    { g.say(fmt.Sprintf("+%d", pid)) }
func (g *guard) remove(pid int) { g.say(fmt.Sprintf("-%d", pid)) }

func (g *guard) say(line string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = io.WriteString(g.pipe, line+"\n")
}

// dismiss ends the guard when nothing is left to be guarded, having looked for
// processes that left their group.
func (g *guard) dismiss() {
	sweep(g.mark, -1)
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait() // which closes the pipe
}
