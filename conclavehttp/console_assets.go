package conclavehttp

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/display"
)

//go:embed console
var assets embed.FS

func parseTemplates() (*template.Template, error) {
	return template.New("").Funcs(template.FuncMap{
		"visible": display.Name, "ago": ago, "short": shortDuration, "number": number, "count": count, "link": link, "ref": referTo, "seconds": fullDuration,
		"less":     func(n int) int { return n - 1 },
		"position": func(i int) int { return i + 1 },
		"first":    func(all []conclave.PermitInfo) []conclave.PermitInfo { return all[:min(len(all), maxHolders)] },
		"rest":     func(all int) int { return max(0, all-maxHolders) },
		"value":    func(v []byte) string { return display.Value(v, maxValue) },
		"keyValue": valueOf,
	}).ParseFS(assets, "console/*.html")
}

// asset serves a file that the page needs.
func asset(w http.ResponseWriter, r *http.Request, name string) {
	types := map[string]string{
		"style.css": "text/css; charset=utf-8", "script.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	}
	content, err := assets.ReadFile("console/" + name)
	if err != nil || types[name] == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", types[name])
	hurry(w)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// render answers with a page.
func (h *ConsoleHandler) render(w http.ResponseWriter, name string, status int, data any) {
	var b bytes.Buffer
	if err := h.templates.ExecuteTemplate(&b, name, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	hurry(w)
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // fails only if the client has disconnected
}
