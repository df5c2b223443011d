package certificate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/fabrictest/fabrictest/report/conform"
)

// Verified is what is true of a folder.
type Verified struct {
	*Certificate
	Files  int    // that the manifest lists
	Signer string // who signed it; empty if nobody was asked for
}

// Verify checks a folder: that nothing in it was changed, added or taken away since
// its manifest was written, that the certificate says what its results say, and that
// every verdict has the capture that proves it. With a file of allowed signers it
// also checks who signed it.
func Verify(ctx context.Context, dir, signers string) (*Verified, error) {
	c, err := Read(dir)
	if err != nil {
		return nil, err
	}
	v := &Verified{Certificate: c}
	var whole, drawn, proven, signed error
	v.Files, whole = checkManifest(dir)
	drawn = c.checkDrawn()
	proven = c.checkProofs(dir)
	if signers != "" {
		v.Signer, signed = checkSignature(ctx, dir, signers)
	}
	if err := errors.Join(whole, drawn, proven, signed); err != nil {
		return nil, err
	}
	return v, nil
}

// checkDrawn draws the certificate again from its results.
func (c *Certificate) checkDrawn() error {
	again, err := Draw(&c.Run, c.Subject, c.Judge)
	switch {
	case err != nil:
		return err
	case again.Outcome != c.Outcome || again.Why != c.Why:
		return fmt.Errorf("it says %q, and its results say %q: %s", c.Outcome, again.Outcome, again.Why)
	case !reflect.DeepEqual(again.Counts, c.Counts):
		return errors.New("its counts are not those of its results")
	case len(again.Clauses) != len(c.Clauses):
		return fmt.Errorf("it lists %d clauses, and its results speak of %d", len(c.Clauses), len(again.Clauses))
	}
	for i := range c.Clauses {
		if !reflect.DeepEqual(again.Clauses[i], c.Clauses[i]) {
			return fmt.Errorf("it says %q of %s, and its results say %q", c.Clauses[i].State, c.Clauses[i].Row, again.Clauses[i].State)
		}
	}
	return nil
}

// checkProofs looks for the captures. A case that said nothing, or that no packet was
// needed for, has none.
func (c *Certificate) checkProofs(dir string) error {
	var errs []error
	for i := range c.Run.Devices[0].Results {
		r := &c.Run.Devices[0].Results[i]
		if r.Capture == "" {
			if r.Verdict != conform.Unsupported && r.Ladder != nil && hasPackets(r.Ladder) {
				errs = append(errs, fmt.Errorf("nothing proves the verdict of %s", r.ID))
			}
			continue
		}
		if !filepath.IsLocal(filepath.FromSlash(r.Capture)) {
			errs = append(errs, fmt.Errorf("the capture of %s is outside of the folder: %s", r.ID, r.Capture))
		} else if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(r.Capture))); err != nil {
			errs = append(errs, fmt.Errorf("the capture of %s: %w", r.ID, err))
		}
	}
	return errors.Join(errs...)
}

func hasPackets(l *conform.Ladder) bool {
	for i := range l.Steps {
		if k := l.Steps[i].Kind; k == conform.Sent || k == conform.Came {
			return true
		}
	}
	return false
}
