package browsertest

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/conclave-go/conclave/conclavehttp"
)

var screenshots = flag.String("screenshots", "", "`folder` for the screenshots of docs/OPERATIONS.md; none are taken without it")

// TestScreenshots takes the screenshots of docs/OPERATIONS.md:
//
//	go -C contrib/browsertest test -run Screenshots -args -screenshots ../../docs
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("no -screenshots folder")
	}
	s := stage(t, &conclavehttp.ConsoleOptions{})
	s.furnish()
	s.work()
	for _, c := range []struct {
		file, path, scheme string
		width, height      int64
		scale              float64
		mobile             bool
		top                string // scrolled to
	}{
		{"console-light.png", "?lock=invoices%2F2026-11", "light", 1240, 1000, 1, false, ""},
		{"console-dark.png", "?prefix=orders%2F", "dark", 390, 844, 1.5, true, "nav"},
	} {
		b := start(t)
		b.colours(c.scheme)
		b.do(
			chromedp.EmulateViewport(c.width, c.height, chromedp.EmulateScale(c.scale)),
			chromedp.Navigate(s.url+c.path),
		)
		b.awaitText("#live", "live")
		b.awaitText("#cycles", "Possible deadlocks")
		// 20 seconds of the chart, at one point a second.
		b.await(`(document.querySelector('path.line:not(.high)').getAttribute('d').match(/L/g) ?? []).length > 15`)
		if c.top != "" {
			b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("` + c.top + `").parentElement.scrollIntoView()`))
		}
		image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		must(t, err)
		must(t, os.WriteFile(filepath.Join(*screenshots, c.file), small(t, image), 0o644))
	}
}

// small encodes an image in its 256 most frequent colours, which is a third of the size.
func small(t *testing.T, screenshot []byte) []byte {
	t.Helper()
	decoded, err := png.Decode(bytes.NewReader(screenshot))
	must(t, err)
	bounds := decoded.Bounds()
	counts := make(map[color.Color]int)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[decoded.At(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) })
	paletted := image.NewPaletted(bounds, frequent[:min(256, len(frequent))])
	nearest := make(map[color.Color]uint8)
	for c := range counts {
		nearest[c] = uint8(paletted.Palette.Index(c))
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			paletted.SetColorIndex(x, y, nearest[decoded.At(x, y)])
		}
	}
	var b bytes.Buffer
	must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, paletted))
	return b.Bytes()
}
