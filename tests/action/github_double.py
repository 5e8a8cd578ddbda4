"""A server that answers as GitHub's API does for comments of pull requests."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

BOT = "github-actions[bot]"


class GitHub:
    """The comments of one pull request of the repository "o/r".

    Attributes:
        comments: by their numbers.
        requests: method and path of each.
        refused: a code with which each request that writes is answered, if not 0.
    """

    def __init__(self, refused: int = 0) -> None:
        self.comments: dict[int, dict[str, Any]] = {}
        self.requests: list[tuple[str, str]] = []
        self.refused = refused

    def add(self, body: str, login: str = BOT) -> int:
        """Add a comment of a user, and return its number."""
        number = 100 + len(self.comments)
        url = f"https://github.test/o/r/pull/5#{number}"
        user = {"login": login}
        self.comments[number] = {"id": number, "body": body, "user": user, "html_url": url}
        return number

    def pull_request(self, path: Path, number: int, repository: str = "o/r") -> None:
        """Write the event of a pull request from a repository."""
        head = {"sha": "0123456789abcdef" * 2, "repo": {"full_name": repository}}
        path.write_text(json.dumps({"pull_request": {"number": number, "head": head}}))

    @property
    def variables(self) -> dict[str, str]:
        """The variables by which a step finds this server."""
        host, port = self._server.server_address[:2]
        return {"GITHUB_API_URL": f"http://{host!s}:{port}", "GITHUB_RUN_ID": "9"}

    def answer(self, method: str, target: str, content: Any, token: str) -> tuple[int, Any]:
        """The code and the content with which a request is answered."""
        self.requests.append((method, target))
        address = urlsplit(target)
        query = {key: int(values[0]) for key, values in parse_qs(address.query).items()}
        if token != "Bearer secret":
            return 401, {"message": "Bad credentials"}
        match method, address.path.split("/")[1:]:
            case "GET", ["repos", "o", "r", "issues", "5", "comments"]:
                first = (query["page"] - 1) * query["per_page"]
                return 200, [*self.comments.values()][first : first + query["per_page"]]
            case _ if self.refused:
                return self.refused, {"message": "Resource not accessible by integration"}
            case "POST", ["repos", "o", "r", "issues", "5", "comments"]:
                return 201, self.comments[self.add(content["body"])]
            case "PATCH", ["repos", "o", "r", "issues", "comments", number]:
                comment = self.comments[int(number)]
                comment["body"] = content["body"]
                return 200, comment
        return 404, {"message": "Not Found"}

    def __enter__(self) -> Self:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            def handle_one(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                content = json.loads(self.rfile.read(size) or b"null")
                token = self.headers.get("Authorization", "")
                code, answered = answer(self.command, self.path, content, token)
                data = json.dumps(answered).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = handle_one  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
