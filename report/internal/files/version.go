package files

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrVersion is found in what Version returns of a layout that is not known.
var ErrVersion = errors.New("unknown version")

// Version looks at the version of a document alone, because the keys of another one
// are not known. what is what the document should be.
func Version(text []byte, want int, what string) error {
	var head struct {
		Version *json.Number `json:"version"`
	}
	err := json.Unmarshal(text, &head)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON after %d of %d bytes: %w", syntax.Offset, len(text), err)
	case err != nil:
		return &KeyError{"version", fmt.Errorf("want the number %d: %w", want, err)}
	case head.Version == nil:
		return &KeyError{"version", fmt.Errorf("missing: this is not %s", what)}
	case head.Version.String() != fmt.Sprint(want):
		return &KeyError{"version", fmt.Errorf("%w %v: this fabrictest reads version %d", ErrVersion, *head.Version, want)}
	}
	return nil
}
