package wire

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }
