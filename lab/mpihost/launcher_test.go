package mpihost

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// TestMain also runs the test binary as a program of ranks.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "ranks" {
		mpi.Main(programs[os.Args[2]])
	}
	os.Exit(m.Run())
}

var programs = map[string]func(*mpi.World) error{
	"barrier": func(w *mpi.World) error { return w.Barrier() },
	"fails":   func(*mpi.World) error { return errors.New("no more paper") },
	"races": func(w *mpi.World) error {
		win, err := w.WinAllocate(8)
		if err != nil {
			return err
		}
		err = win.Fence(0)
		if w.Rank() == 0 {
			err = errors.Join(err, win.Put(make([]byte, 8), 1, 0))
		} else {
			win.StoreLocal(4, []byte{1})
		}
		return errors.Join(err, win.Fence(mpi.NoSucceed), win.Free())
	},
	"late": func(w *mpi.World) error {
		if w.Rank() == 1 {
			w.Compute(time.Hour)
		}
		return nil
	},
}

func world(t *testing.T, program, job string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "ranks", program)
	cmd.Env = append(os.Environ(), WorldVar+"="+job)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "ok " + string(out)
	}
	return err.Error() + " " + string(out)
}

func TestProgramRunsAllRanksOfWorld(t *testing.T) {
	for _, c := range []struct{ program, job, want string }{
		{"barrier", `{"ranks":3,"per_host":2,"rails":2}`, "ok "},
		{"barrier", `{"ranks":2,"options":{"Carrier":{"design":"ud"},"Progress":1}}`, "ok "},
		{"barrier", `{"ranks":2,"options":{"Carrier":{"design":"best"}}}`, "unknown design \"best\""},
		{"barrier", `{"ranks":2,"options":[]}`, "the options from 'fabrictest mpirun'"},
		{"barrier", `{"ranks":2,"checkers":["races","misuse"]}`, "ok "},
		{"barrier", `{"ranks":2,"checkers":["bugs"]}`, `no checker "bugs": there are races, misuse, unsafe, message-races`},
		{"races", `{"ranks":2}`, "ok "},
		{"races", `{"ranks":2,"checkers":["races"]}`, "data race on window world.window, memory of rank 1, 1 bytes at offset 4"},
		{"races", `{"ranks":2,"checkers":["races"]}`, "Win.Put at mpihost/launcher_test.go:"},
		{"fails", `{"ranks":2}`, "exit status 1 rank"},
		{"late", `{"ranks":2,"limit":1000000000}`, "the limit of time is reached"},
	} {
		if got := world(t, c.program, c.job); !strings.HasPrefix(got, c.want) && (c.want == "ok " || !strings.Contains(got, c.want)) {
			t.Errorf("%s of %s: %s\nwant %q", c.program, c.job, got, c.want)
		}
	}
}
