package nslab

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair/ethernet"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// MaxFabricCapture is how large the capture of a fabric becomes, if nothing else
// is said: a run of hours must not fill a disk.
const MaxFabricCapture = 256 << 20

// CaptureOptions are those of the file that a Stage writes: the frames that come
// to whatever may happen to them in user space, as they came. What was lost or
// changed there says so in a comment of the packet. A cable that the kernel
// carries is not in it, nor one that can only be cut.
type CaptureOptions struct {
	// File is its name; empty for none. If nothing is there to be captured, there is
	// no file.
	File string
	// MaxBytes bounds the file; 0 means MaxFabricCapture.
	MaxBytes int64
	// Comment is kept in the file, for the command that replays it, say.
	Comment string
	// OnCut, if not nil, is told once, from the goroutine of a switch, that the file
	// has reached its bound.
	OnCut func()
}

// fabricFile is a capture at the switches.
type fabricFile struct {
	opts  CaptureOptions
	epoch time.Time // time 0 of the switches
	file  *os.File  // nil until something is tapped
	to    *ethernet.Capture
}

// tap returns a path with what comes to it in the file, if there is to be one.
func (f *fabricFile) tap(name string, path uswitch.FrameHandler) (uswitch.FrameHandler, error) {
	if f.opts.File == "" {
		return path, nil
	}
	if f.file == nil {
		file, err := os.Create(f.opts.File)
		if err != nil {
			return nil, fmt.Errorf("capture: %w", err)
		}
		f.file = file
		f.to = ethernet.NewCapture(file, ethernet.CaptureOptions{
			Epoch: f.epoch, Comment: f.opts.Comment,
			MaxBytes: cmp.Or(f.opts.MaxBytes, MaxFabricCapture), OnCut: f.opts.OnCut,
		})
	}
	return f.to.Tap(name, path), nil
}

// close completes the file, when the switches have ended.
func (f *fabricFile) close() error {
	if f.file == nil {
		return nil
	}
	return complete(f.file, f.to.Close())
}

// complete closes a capture; err is what went wrong with it before. One that
// cannot be completed, on a full disk, is worse than none, which leaves room for
// the report.
func complete(file *os.File, err error) error {
	err = errors.Join(err, file.Close())
	if err != nil {
		err = errors.Join(err, os.Remove(file.Name()))
	}
	return err
}
